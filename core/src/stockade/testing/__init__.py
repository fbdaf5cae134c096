"""For the tests of plugin authors and of Stockade itself."""
