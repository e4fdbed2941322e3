// Error types and messages that all stores share.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hookline/core/error.hpp>
#include <hookline/store/store.hpp>

namespace hookline::store {

/// The torch.distributed exception that PyTorch's stores raise for the equivalent error.
enum class DistError { store, network, queue_empty };

/// Marks an error of a store. In a Python process that has imported torch.distributed, the exception is also an
/// instance of PyTorch's class.
class HOOKLINE_EXPORT DistErrorMark {
 public:
  explicit DistErrorMark(DistError kind) : kind_(kind) {}
  virtual ~DistErrorMark();
  DistError dist_error() const { return kind_; }

 private:
  DistError kind_;
};

template <class E, DistError kind>
class Marked final : public E, public DistErrorMark {
 public:
  explicit Marked(const std::string& message, std::exception_ptr cause = nullptr)
      : E(message, std::move(cause)), DistErrorMark(kind) {}
};

using StoreTimeout = Marked<Timeout, DistError::store>;
using NetworkTimeout = Marked<Timeout, DistError::network>;
using NetworkLost = Marked<PeerLost, DistError::network>;
using NetworkRefused = Marked<ResourceError, DistError::network>;
using QueueEmpty = Marked<InvalidArgument, DistError::queue_empty>;

/// Throws Timeout naming the operation, key, store and timeout.
[[noreturn]] void throw_timeout(const Store& store, std::string_view operation, std::string_view key,
                                Milliseconds waited);
[[noreturn]] void throw_barrier_timeout(const Store& store, std::string_view key, Milliseconds waited,
                                        std::exception_ptr cause = nullptr);

/// Returns the missing keys for an error message, the first few by name.
std::string describe_missing_keys(Store& store, const std::vector<std::string>& keys);

/// Throws the error of a non-blocking queue_pop on an empty queue.
[[noreturn]] void throw_queue_empty(const Store& store, std::string_view key);

/// Throws InvalidArgument unless the world size of a barrier is positive.
void check_world_size(const Store& store, std::string_view key, std::int64_t world_size);

/// Throws InvalidArgument unless `world_size` is from 1 to kMaxWorldSize. The error names the caller `where` and the
/// argument or environment variable `name`.
void check_world_size_range(std::string_view where, std::string_view name, std::int64_t world_size);

/// Throws InvalidArgument unless the numbers of keys and values are equal.
void check_one_value_per_key(const Store& store, const std::vector<std::string>& keys,
                             const std::vector<std::string>& values);

}  // namespace hookline::store
