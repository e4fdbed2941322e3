// FlightRecordRing: recording operations, and the JSON dump.
#include "group/flight_record_ring.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/op_traits.hpp"
#include "core/op_tag.hpp"
#include "core/utf8.hpp"

namespace hookline::group {
namespace {

using backend::is_point_to_point;
using backend::is_rooted;

FlightRecorderOptions with_defaults(FlightRecorderOptions options) {
  static std::atomic<int> groups = 0;
  if (options.capacity == 0) throw InvalidArgument("with_flight_recorder: expected a capacity of at least 1, got 0");
  if (options.name.empty()) options.name = fmt::format("group{}", groups.fetch_add(1));
  if (options.directory.empty()) {
    const char* const env_directory = std::getenv("HOOKLINE_DEBUG_DIR");
    options.directory = env_directory && *env_directory ? env_directory : "hookline-debug";
  }
  return options;
}

/// Returns the time of the coarse monotonic clock: accurate to a few milliseconds, but much cheaper than Clock::now().
/// When the operation ends, its Work provides the exact start time.
Clock::time_point coarse_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return Clock::time_point(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

// Returns a JSON string literal in valid UTF-8.
std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : core::valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') result += fmt::format("\\{}", c);
    else if (byte < 0x20 || byte == 0x7f) result += fmt::format("\\u{:04x}", byte);
    else result += c;
  }
  return result + "\"";
}

const char* name_of(FlightRecord::State state) {
  if (state == FlightRecord::State::running) return "running";
  return state == FlightRecord::State::done ? "done" : "failed";
}

/// Converts monotonic times to seconds since 1970, so that dumps of several processes can be compared.
class WallClock {
 public:
  double operator()(Clock::time_point time) const {
    return std::chrono::duration<double>(wall_.time_since_epoch()).count() -
           std::chrono::duration<double>(now_ - time).count();
  }
  double now() const { return (*this)(now_); }

 private:
  const std::chrono::system_clock::time_point wall_ = std::chrono::system_clock::now();
  const Clock::time_point now_ = Clock::now();
};

std::string number_or_null(const std::optional<std::uint64_t>& number) {
  return number ? std::to_string(*number) : "null";
}

std::string json_of(const FlightRecord& r, const WallClock& seconds) {
  const bool finished = r.state != FlightRecord::State::running;
  const bool is_p2p = is_point_to_point(r.type);
  std::string text = fmt::format(
      R"({{"number": {}, "lane": {}, "in_lane": {}, "op": "{}", "state": "{}", "tensors": {}, "bytes": {}, "step": {}, "bucket": {}, )"
      R"("started": {:.6f}, "finished": {})",
      r.number, is_p2p ? -1 : r.lane, r.lane_sequence, name(r.type), name_of(r.state), r.tensors, r.bytes,
      number_or_null(core::step_of(r.op_tag)), number_or_null(core::bucket_of(r.op_tag)), seconds(r.started),
      finished ? fmt::format("{:.6f}", seconds(r.finished)) : "null");
  if (r.tensors > 0) text += fmt::format(R"(, "dtype": "{}", "shape": [{}])", name(r.dtype), fmt::join(r.shape, ", "));
  if (is_p2p || is_rooted(r.type)) text += fmt::format(R"(, "root": {})", r.root);
  if (is_p2p) text += fmt::format(R"(, "tag": {})", r.tag);
  else text += fmt::format(R"(, "reduce_op": "{}")", name(r.op));
  if (!r.error.empty()) text += fmt::format(R"(, "error": {})", json_string(r.error));
  return text + "}";
}

}  // namespace

FlightRecordRing::FlightRecordRing(const ProcessGroup& group, FlightRecorderOptions options)
    : options_(with_defaults(std::move(options))),
      rank_(group.rank()),
      size_(group.size()),
      backend_(group.backend_name()),
      ring_(options_.capacity) {
  register_signal_dump(this);
}

FlightRecordRing::~FlightRecordRing() { unregister_signal_dump(this); }

std::uint64_t FlightRecordRing::start(const Operation& operation) {
  const int lane = current_context().lane;
  const auto& tensors = operation.inputs.empty() ? operation.outputs : operation.inputs;
  std::size_t bytes = 0;
  for (const Tensor& t : tensors) bytes += t.nbytes();
  const auto now = coarse_now();

  const std::lock_guard lock(mutex_);
  FlightRecord& r = ring_[++count_ % ring_.size()];
  r.number = count_;
  r.lane_sequence =
      ++lane_counts_[is_point_to_point(operation.type) ? kP2PIndex : static_cast<std::size_t>(lane) % kP2PIndex];
  r.type = operation.type;
  r.state = FlightRecord::State::running;
  r.lane = lane;
  r.root = operation.root;
  r.tag = operation.tag;
  r.op = operation.op;
  r.op_tag = operation.op_tag != 0 ? operation.op_tag : current_context().op_tag;
  r.tensors = tensors.size();
  r.bytes = bytes;
  if (!tensors.empty()) {
    r.dtype = tensors.front().dtype();
    r.shape = tensors.front().shape();
  }
  r.started = now;
  r.error.clear();
  return count_;
}

void FlightRecordRing::finish(std::uint64_t number, Clock::time_point started, Clock::time_point finished,
                              const std::exception_ptr& error) {
  bool dump = false;
  {
    const std::lock_guard lock(mutex_);
    FlightRecord& r = ring_[number % ring_.size()];
    if (r.number == number) {  // otherwise the record has been overwritten
      r.state = error ? FlightRecord::State::failed : FlightRecord::State::done;
      r.started = started;
      r.finished = finished;
      if (error) r.error = describe(error);
    }
    dump = error && !std::exchange(dumped_error_, true);
  }
  if (dump) try_dump("error");
}

std::string FlightRecordRing::json(const std::string& reason) const {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const WallClock seconds;
  const std::lock_guard lock(mutex_);
  const std::uint64_t num_kept = std::min<std::uint64_t>(count_, ring_.size());
  std::string text = fmt::format(
      R"({{"version": 1, "group": {}, "backend": {}, "rank": {}, "size": {}, "host": {}, "pid": {}, "reason": {}, )"
      R"("time": {:.6f}, "count": {}, "operations": [)",
      json_string(options_.name), json_string(backend_), rank_, size_, json_string(host.data()), getpid(),
      json_string(reason), seconds.now(), count_);
  for (std::uint64_t number = count_ - num_kept + 1; number <= count_; ++number) {
    text += (number == count_ - num_kept + 1 ? "\n" : ",\n") + json_of(ring_[number % ring_.size()], seconds);
  }
  return text + "\n]}\n";
}

// Writes a temporary file and renames it, so that readers never see a partial file. Concurrent dumps are serialized, so
// the newest records win.
std::string FlightRecordRing::dump(const std::string& path, const std::string& reason) const {
  namespace fs = std::filesystem;
  static std::mutex dump_mutex;
  const std::lock_guard lock(dump_mutex);
  const fs::path target = path.empty()
                              ? fs::path(options_.directory) / fmt::format("{}.rank{}.json", options_.name, rank_)
                              : fs::path(path);
  try {
    if (target.has_parent_path()) fs::create_directories(target.parent_path());
    const fs::path temporary = target.string() + fmt::format(".{}.tmp", getpid());
    {
      std::ofstream file(temporary);
      file << json(reason);
      file.flush();
      if (!file) throw ResourceError("cannot write to " + temporary.string());
    }
    fs::rename(temporary, target);
  } catch (const fs::filesystem_error& e) {
    throw ResourceError(fmt::format("cannot write the flight records of {}: {}", options_.name, e.what()));
  }
  return target.string();
}

void FlightRecordRing::try_dump(const std::string& reason) const noexcept {
  try {
    const std::string path = dump({}, reason);
    fmt::print(stderr, "hookline: rank {}: flight records written to {} (reason: {})\n", rank_, path, reason);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hookline: rank %d: %s\n", rank_, e.what());
  }
}

}  // namespace hookline::group
