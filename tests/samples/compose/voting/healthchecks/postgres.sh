#!/bin/sh
exec wget -q -O - http://localhost:5432/
