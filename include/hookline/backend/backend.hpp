// What moves the bytes of a process group: the seam that threads, shm and the engines between hosts implement.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/collective.hpp>
#include <hookline/backend/work.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

class Backend;

/// What a backend can do, asked before it is tried.
struct Capabilities {
  static constexpr int kMostLanes = 16;  ///< more of them are not used

  int lanes = 1;                ///< how many sequences of collectives may be under way side by side
  bool shared_buffers = false;  ///< whether allocate() gives memory that collectives work on in place
  bool readers = false;         ///< whether a collective may have a BlockReader in the place of outputs
  bool levels = false;  ///< whether a sum may have a SliceReducer: ranks share hosts, and there are several hosts
};

/// Reduces between hosts what the ranks of a host have added up: how a collective is compressed where that pays, and
/// nowhere else. Of allreduce with the op sum, where Capabilities::levels allows it.
class HOOKLINE_EXPORT SliceReducer {
 public:
  virtual ~SliceReducer();
  /// What it does, in words: where ranks give different ones, the operation is a Mismatch.
  virtual std::string name() const = 0;
  /// Replaces this host's sum of a slice by that of all hosts. `counterparts` are the owners of the slice on all hosts;
  /// `first` is the place of its first value among all. May block, and throw, in the thread that runs the operation.
  virtual void reduce(const std::shared_ptr<Backend>& counterparts, const Tensor& slice, std::size_t first, int lane,
                      Milliseconds timeout) = 0;
};

/// One rank's end of a group of ranks. Arguments were checked by the group; what depends on a peer or on time comes
/// through the Work.
class HOOKLINE_EXPORT Backend {
 public:
  virtual ~Backend();

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Capabilities capabilities() const = 0;

  /// Starts an operation in a lane and returns without waiting for a peer. It fails with Timeout after that time,
  /// whatever `collective.timeout` says. It lives until it is over, whoever lets go of it. Operations of a lane end in
  /// the order in which they were started; sends and receives stand outside lanes.
  [[nodiscard]] virtual WorkPtr start(Collective&& collective, int lane, Milliseconds timeout) = 0;

  /// Memory for `bytes` that operations of this group can use in place; ordinary memory where there is no such thing.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;

  /// A backend of some of the ranks, in the order given. Called by those, and only those, under a name that all of them
  /// give and that this backend has not been given before.
  virtual std::shared_ptr<Backend> subset(const std::vector<int>& ranks, const std::string& name,
                                          Milliseconds timeout) = 0;

  /// Fails everything under way and to come, here and on the other ranks, with Aborted naming this rank and the cause.
  virtual void abort(const std::string& cause) = 0;
  /// Leaves the group without waiting for anybody: what is pending here fails with Aborted, what waits for this rank
  /// elsewhere with PeerLost. The destructor does it too.
  virtual void shutdown() = 0;
  /// Why no operation can succeed any more; null while the group is sound.
  virtual std::exception_ptr broken() const = 0;
  /// Returns the ranks whose processes have ended without leaving the group, as far as this rank can tell now. Called
  /// a few times a second while a subset is being made; does not block. None where a backend cannot tell.
  virtual std::vector<int> dead_ranks() { return {}; }
};

}  // namespace hookline
