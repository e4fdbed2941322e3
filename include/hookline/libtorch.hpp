// The libtorch API of Hookline. Header-only: compiled against the program's own libtorch.
#pragma once

#include <hookline/adapter/libtorch/data_parallel.hpp>
#include <hookline/adapter/libtorch/tensor_views.hpp>
#include <hookline/hookline.hpp>
