// LocalBackend: the Backend implementation that the threads and shm backends share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/local/local_context.hpp"

namespace hookline::local {

/// Creates this rank's backend of a subgroup.
using MakeSubgroup = std::function<std::shared_ptr<Backend>(const std::vector<int>& ranks, const std::string& name,
                                                            Milliseconds timeout)>;

/// Returns a backend that owns a LocalContext over `memory` and closes it in its destructor. Views of allocated memory
/// may outlive the backend.
std::shared_ptr<Backend> make_local_backend(std::unique_ptr<Memory> memory, LocalContextOptions options,
                                            MakeSubgroup make_subgroup);

/// Throws InvalidArgument if the layout does not support this number of ranks.
void check_size(int size, const std::string& backend);

}  // namespace hookline::local
