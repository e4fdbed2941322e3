// The hierarchical backend: shared memory inside a host, a transport between hosts.
#pragma once

#include <memory>

#include <hookline/backend/backend.hpp>
#include <hookline/backend/transport.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// Creates this rank's endpoint of a group on any number of hosts; every rank calls it. The ranks find out through the
/// store which of them share a host. The option "transport" names the transport, "gloo" by default; all other options
/// go to the transport. On one host the group is a shm group. Throws Timeout naming the missing ranks, and everything
/// that make_backend() throws.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_hierarchical_backend(const TransportConfig& config);

/// Creates the default backend: shm on one host, otherwise hierarchical. The transport is the one named by the option
/// "transport"; else mpi if mpirun of the MPI library that the transport was built with started every rank; else gloo.
/// Accepts the options of all these backends and passes each its own. Throws InvalidArgument for an unknown option.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_default_backend(const TransportConfig& config);

}  // namespace hookline
