"""The crash drill: the loop is killed at many moments, resumed, and must come to the same bits. For a test machine."""
