// LocalBackend: the Backend implementation that the threads and shm backends share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/local/local_context.hpp"

namespace hookline::local {

/// How the members of a subset meet: makes the memory of one of them.
using MakeSubgroup = std::function<std::shared_ptr<Backend>(const std::vector<int>& ranks, const std::string& name,
                                                            Milliseconds timeout)>;

/// Opens the engine; the destructor closes it. Views of allocated memory outlive both.
std::shared_ptr<Backend> make_local_backend(std::unique_ptr<Memory> memory, LocalContextOptions options,
                                            MakeSubgroup make_subgroup);

/// Throws InvalidArgument for a number of ranks that the layout has no room for.
void check_size(int size, const std::string& backend);

}  // namespace hookline::local
