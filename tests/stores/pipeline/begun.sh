#!/bin/sh
touch began
until [ -e go ]; do sleep 0.1; done
cat
