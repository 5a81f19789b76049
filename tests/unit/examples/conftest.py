"""What is imported here is copied into images: compiled files beside it would change them."""

import sys

sys.dont_write_bytecode = True
