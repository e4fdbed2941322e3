// Ranks on several hosts: shared memory inside a host, an engine between hosts.
#pragma once

#include <memory>

#include <hookline/backend/backend.hpp>
#include <hookline/backend/engine.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// This rank's end of a group of ranks on any number of hosts; every rank calls it. Which of them share a host is found
/// out in the store. The option "engine" is the engine's name, "gloo" where it is not given; the others are for that
/// engine. On one host the group is a shm group. Timeout naming the ranks that did not come, and what make_backend
/// throws.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_layered_backend(const EngineSetting& setting);

/// What a program gets that names no backend: shm on one host; beyond it layered over gloo, or over mpi where the
/// mpirun of the MPI that the engine is built with started every rank; over what the option "engine" names. The
/// options of all of these are taken, and each gets its own; InvalidArgument for one that none takes.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_default_backend(const EngineSetting& setting);

}  // namespace hookline
