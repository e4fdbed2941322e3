// BucketScheduler, shared by this library's reducer and the adapters to other reducers.
#include "hook/bucket_scheduler.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hookline/backend/backend.hpp>
#include <hookline/core/error.hpp>

namespace hookline::hook {

BucketScheduler::BucketScheduler(int lanes)
    : busy_(static_cast<std::size_t>(std::clamp(lanes, 1, Capabilities::kMaxLanes))) {}

int BucketScheduler::lane_of(const CommHookInterface& hook, std::size_t bucket) const {
  if (lanes() == 1) return 0;
  return 1 + (hook.may_block() ? 0 : static_cast<int>(bucket % (busy_.size() - 1)));
}

void throw_bad_result(const std::string& label, const Tensor& buffer, const Tensor& result) {
  throw InvalidArgument(
      fmt::format("{}: invalid hook result: expected {}, got {}", label, to_string(buffer), to_string(result)));
}

bool is_group_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Mismatch&) {
    return true;
  } catch (const Aborted&) {
    return true;
  } catch (const PeerLost&) {
    return true;
  } catch (const Timeout&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace hookline::hook
