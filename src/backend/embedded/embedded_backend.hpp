// LocalBackend: the Backend implementation that the threads and shm backends share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/embedded/engine.hpp"

namespace hookline::embedded {

/// How the members of a subset meet: makes the memory of one of them.
using MakeSubset = std::function<std::shared_ptr<Backend>(const std::vector<int>& ranks, const std::string& name,
                                                          Milliseconds timeout)>;

/// Opens the engine; the destructor closes it. Views of allocated memory outlive both.
std::shared_ptr<Backend> make_backend(std::unique_ptr<Memory> memory, EngineOptions options, MakeSubset make_subset);

/// Throws InvalidArgument for a number of ranks that the layout has no room for.
void check_size(int size, const std::string& backend);

}  // namespace hookline::embedded
