// The Backend interface: moves the bytes of a process group.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/operation.hpp>
#include <hookline/backend/work.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

class Backend;

/// Number of lanes of Hookline's own backends: lane 0 for the caller, the others for hooks.
inline constexpr int kNumLanes = 5;

/// Optional features of a backend. Check them before use.
struct Capabilities {
  static constexpr int kMaxLanes = 16;  ///< upper limit of `lanes` for all backends

  int lanes = 1;                 ///< number of lanes: sequences of collectives that run concurrently
  bool shared_buffers = false;   ///< true if collectives work in place on memory from allocate()
  bool zero_copy_reads = false;  ///< true if a collective may take a BlockReader instead of outputs
  bool hierarchical = false;     ///< true if an allreduce may take an InterHostReducer
};

/// The inter-host stage of a hierarchical allreduce: reduces the sums of the hosts, for example compressed. Valid for
/// allreduce with the op sum if Capabilities::hierarchical is true.
class HOOKLINE_EXPORT InterHostReducer {
 public:
  virtual ~InterHostReducer();
  /// Identifies the reducer and its options. Ranks with different names fail with Mismatch.
  virtual std::string name() const = 0;
  /// Replaces this host's sum of a slice with the sum over all hosts. `inter_host` connects the owners of the slice;
  /// `element_offset` is the position of the slice in the tensor. Runs on the operation's thread; may block and throw.
  virtual void reduce(const std::shared_ptr<Backend>& inter_host, const Tensor& slice, std::size_t element_offset,
                      int lane, Milliseconds timeout) = 0;
};

/// One rank's endpoint of a group. The process group validates all arguments before it calls a backend. Peer failures
/// and timeouts complete the Work with an error.
class HOOKLINE_EXPORT Backend {
 public:
  virtual ~Backend();

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Capabilities capabilities() const = 0;

  /// Starts an operation in a lane and returns without waiting for a peer. The operation fails with Timeout after
  /// `timeout`; `operation.timeout` is ignored. The caller may drop the Work: the operation stays alive until it
  /// completes. Operations of a lane complete in the order in which they were started; sends and receives do not belong
  /// to a lane.
  [[nodiscard]] virtual WorkPtr start(Operation&& operation, int lane, Milliseconds timeout) = 0;

  /// Allocates memory that operations of this group use in place; ordinary memory if shared_buffers is false.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

  /// Creates a backend over `ranks`, renumbered in that order. Exactly these ranks call it, with the same `name`. Names
  /// must not be reused.
  virtual std::shared_ptr<Backend> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                                Milliseconds timeout) = 0;

  /// Fails all pending and future operations on all ranks with Aborted, which names this rank and the cause.
  virtual void abort(const std::string& cause) = 0;
  /// Leaves the group without waiting for peers. Pending operations of this rank fail with Aborted; operations of peers
  /// that need this rank fail with PeerLost. The destructor calls it.
  virtual void shutdown() = 0;
  /// Returns the error that broke the group, or null.
  virtual std::exception_ptr error() const = 0;
  /// Returns the ranks known to have died without leaving the group. Does not block; called several times per second
  /// while a subgroup is created. Empty if the backend cannot detect deaths.
  virtual std::vector<int> dead_ranks() { return {}; }
};

}  // namespace hookline
