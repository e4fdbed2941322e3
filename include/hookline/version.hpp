// The version of the library. The build and the Python package read it from this file.
#pragma once

#define HOOKLINE_VERSION_MAJOR 0
#define HOOKLINE_VERSION_MINOR 1
#define HOOKLINE_VERSION_PATCH 0
#define HOOKLINE_VERSION "0.1.0"
