"""Cursor, through cursor-sdk: the engine `stockade_cursor.engine:CursorEngine`, and the route to its vendor."""
