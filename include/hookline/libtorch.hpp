// What Hookline offers to programs that use libtorch: built against the program's own libtorch, nothing to link beside.
#pragma once

#include <hookline/adapter/libtorch/data_parallel.hpp>
#include <hookline/adapter/libtorch/tensor_views.hpp>
#include <hookline/hookline.hpp>
