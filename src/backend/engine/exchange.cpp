// Header exchange and agreement. Small blocks travel with the headers.
#include "backend/engine/exchange.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/engine/station.hpp"
#include "kernel/reduce.hpp"

namespace hookline::engine {
namespace {

constexpr std::size_t kLine = backend::kCacheLine;
constexpr std::size_t kMostInlined = 32 * 1024;
constexpr Milliseconds kLook{2};  // for a header that has already arrived

constexpr std::size_t kCallBytes = kLine;  // aligns the data behind the signature to a cache line
static_assert(sizeof(backend::Call) <= kCallBytes);

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// All-to-all traffic grows with the ranks, so the limit per rank shrinks. Between two ranks an inline reduction sends
// no more bytes than direct_reduce(), in one message instead of three.
std::size_t inline_limit(int size) {
  const std::size_t peers = static_cast<std::size_t>(std::max(size - 1, 1));
  return std::max<std::size_t>(kMostInlined / peers, 1024) / kLine * kLine;
}

}  // namespace

Exchange::Exchange(std::shared_ptr<Station> station, Milliseconds timeout, int lane, Collective&& what)
    : Operation(std::move(station), timeout, std::move(what)),
      lane_(lane),
      rank_(this->station().rank()),
      size_(this->station().size()),
      parts_(backend::cut(collective(), rank_, size_)),
      call_(backend::call_of(collective(), parts_)),
      inline_limit_(inline_limit(size_)),
      inlined_((is_source(rank_) ? parts_.give.bytes() : 0) <= inline_limit_) {
  room_ = round_up(kCallBytes + head_bytes() + inline_limit_);
}

std::size_t Exchange::head_bytes() const {
  // Reserved by all ranks for every operation: a mismatching peer may call an alltoall.
  return round_up(2 * sizeof(std::uint64_t) * static_cast<std::size_t>(size_));
}

// Posts receives before sends, so that the headers of peers never wait for a buffer.
void Exchange::begin(std::uint64_t number) {
  number_ = number;
  greetings_ = Tensor::empty({size_, static_cast<std::int64_t>(room_)}, DType::u8);
  std::byte* const all = greetings_.mutable_bytes();
  std::byte* const mine = all + static_cast<std::size_t>(rank_) * room_;
  std::memset(mine, 0, kCallBytes);
  std::memcpy(mine, &call_, sizeof call_);
  std::size_t at = kCallBytes;
  if (parts_.motion == Motion::alltoall) {
    for (const auto* side : {&parts_.give, &parts_.take}) {
      for (std::size_t i = 0; i < side->size(); ++i) {
        const std::uint64_t bytes = (*side)[i].bytes();
        std::memcpy(mine + at, &bytes, sizeof bytes);
        at += sizeof bytes;
      }
    }
    at = kCallBytes + head_bytes();
  }
  if (inlined_ && is_source(rank_)) {
    take_in(parts_);
    parts_.give.read(mine + at);
    at += parts_.give.bytes();
  }
  received_.resize(static_cast<std::size_t>(size_));
  sent_.resize(static_cast<std::size_t>(size_));
  const MessageAddress address{2 + 2 * lane_, number};
  int peer = rank_;
  try {
    for (int i = 1; i < size_; ++i) {
      peer = (rank_ + i) % size_;
      const auto r = static_cast<std::size_t>(peer);
      std::memset(all + r * room_, 0, kCallBytes);
      received_[r] = station().engine().receive(peer, address, all + r * room_, room_);
    }
    for (int i = 1; i < size_; ++i) {
      peer = (rank_ + i) % size_;
      sent_[static_cast<std::size_t>(peer)] = station().engine().send(peer, address, mine, at);
    }
  } catch (const PeerLost&) {
    turn_to(peer);
    begin_error_ = std::current_exception();
  }
}

bool Exchange::step() {
  if (!std::exchange(started_, true)) steps_ = run();
  return steps_.step();
}

Steps Exchange::run() {
  if (begin_error_) std::rethrow_exception(begin_error_);
  for (int r = 0; r < size_; ++r) {
    while (!through(received_[static_cast<std::size_t>(r)], r)) co_await backend::kBlocked;
  }
  agreed_ = true;
  for (int r = 0; r < size_; ++r) {
    while (!through(sent_[static_cast<std::size_t>(r)], r)) co_await backend::kBlocked;
  }
  sent_.clear();
  received_.clear();
  greeted_ = true;
  compare();
  if (parts_.motion == Motion::none) co_return;
  take_in(parts_);  // inline payloads are already in the headers
  if (all_inlined()) {
    pull();
  } else {
    Steps transfer;
    switch (parts_.motion) {
      case Motion::allreduce:
      case Motion::reduce:
      case Motion::reduce_scatter: transfer = reduce_slices(); break;
      case Motion::broadcast: transfer = size_ > 2 ? broadcast_slices() : copy_blocks(); break;
      default: transfer = copy_blocks();
    }
    while (!transfer.step()) co_await backend::kBlocked;
    unpack();
  }
  give_back(parts_);
}

const std::byte* Exchange::greeting(int rank) const {
  return greetings_.bytes() + static_cast<std::size_t>(rank) * room_;
}

const std::byte* Exchange::payload(int rank) const {
  const std::byte* const begin = greeting(rank) + kCallBytes;
  return parts_.motion == Motion::alltoall ? begin + head_bytes() : begin;
}

void Exchange::compare() {
  std::vector<backend::Call> calls(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) std::memcpy(&calls[static_cast<std::size_t>(r)], greeting(r), sizeof(backend::Call));
  const std::string differing = backend::difference(calls.data(), size_);
  if (!differing.empty()) {
    throw Mismatch(
        fmt::format("the ranks did not call the same operation (number {} of lane {}): {}", number_, lane_, differing),
        backend::differing_ranks(calls.data(), size_));
  }
  if (parts_.motion == Motion::alltoall) compare_splits();
}

void Exchange::compare_splits() {
  std::vector<const std::byte*> posted;
  posted.reserve(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) posted.push_back(greeting(r) + kCallBytes);
  std::vector<int> ranks;
  const std::string differing = backend::read_splits(posted, splits_, ranks);
  if (!differing.empty()) throw Mismatch(describe() + ": " + differing, ranks);
}

std::size_t Exchange::block_begin(int source, int target) const {
  if (!backend::has_block_per_rank(parts_.motion)) return 0;
  const auto t = static_cast<std::size_t>(target);
  if (parts_.motion != Motion::alltoall) return t * parts_.block_bytes;
  std::size_t begin = 0;
  const std::size_t row = static_cast<std::size_t>(source) * static_cast<std::size_t>(size_);
  for (std::size_t i = 0; i < t; ++i) begin += splits_[row + i];
  return begin;
}

std::size_t Exchange::given_bytes(int source) const {
  return backend::has_block_per_rank(parts_.motion) ? block_begin(source, size_) : parts_.block_bytes;
}

bool Exchange::all_inlined() const {
  for (int s = 0; s < size_; ++s) {
    if (is_source(s) && given_bytes(s) > inline_limit_) return false;
  }
  return true;
}

// Reads the inline payloads of the headers.
void Exchange::pull() {
  const Motion motion = parts_.motion;
  if (backend::reduces(motion)) {
    if (!takes_reduction()) return;
    parts_.take[0].for_each(0, parts_.block_bytes, [&](std::byte* out, std::size_t bytes, std::size_t position) {
      std::vector<const std::byte*> sources;
      sources.reserve(static_cast<std::size_t>(size_));
      for (int s = 0; s < size_; ++s) sources.push_back(payload(s) + block_begin(s, rank_) + position);
      kernel::reduce(collective().op, parts_.dtype, sources, {&out, 1}, bytes / size_of(parts_.dtype));
    });
    return;
  }
  for (int s = 0; s < size_; ++s) {
    if (!backend::gives(motion, s, rank_, collective().root)) continue;
    const backend::Stream& to = parts_.take.of(s);
    to.write(0, to.bytes(), payload(s) + block_begin(s, rank_));
  }
}

void Exchange::let_go() noexcept {
  results_sent_.clear();
  results_received_.clear();
  sent_.clear();
  received_.clear();
}

// Headers that are abandoned with the group access no tensor, and stay posted until the goodbyes have been sent: a
// transport that multiplexes a connection never gets past a message without a buffer.
void Exchange::finish(std::exception_ptr error) {
  if (error && !greeted_ && station().unusable()) {
    struct Greetings {
      Tensor memory;
      std::vector<std::unique_ptr<Message>> sent;
      std::vector<std::unique_ptr<Message>> received;
    };
    station().outbox().keep(
        std::make_shared<Greetings>(Greetings{std::move(greetings_), std::move(sent_), std::move(received_)}));
  }
  let_go();
  complete(std::move(error));
}

// A header sent before a goodbye arrives before the goodbye, or shortly after.
bool Exchange::lacks(int rank) {
  if (agreed_ || rank == rank_) return false;
  const auto& message = received_[static_cast<std::size_t>(rank)];
  if (!message) return true;
  std::exception_ptr ignored;
  const Clock::time_point until = deadline_after(kLook);
  try {
    return station().waits().wait_for(
               station().engine(), *message, rank, [&] { return until; }, ignored, true) != Waits::Outcome::through;
  } catch (...) {  // interrupted
    return true;
  }
}

std::exception_ptr Exchange::time_up() {
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r) {
    if (lacks(r)) missing.push_back(r);
  }
  if (missing.empty()) missing.push_back(awaited_rank());
  return station().not_in_time(*this, missing);
}

std::string Exchange::describe() const { return fmt::format("{} (number {})", backend::describe(call_), number_); }

void Exchange::drive() {
  station().lane(lane_).drive_until([&] { return over(); }, [&] { return deadline(); });
}

void Exchange::hurry() { station().lane(lane_).hurry(); }

}  // namespace hookline::engine
