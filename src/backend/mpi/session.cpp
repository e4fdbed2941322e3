// Initialising and finalising MPI.
#include "backend/mpi/session.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/mpi/introduce.hpp"

namespace hookline::mpi {
namespace {

struct State {
  std::atomic<const std::string*> forbidden = nullptr;
  std::atomic<int> calls = 0;
  std::atomic<bool> one_at_a_time = false;
  std::recursive_mutex turn;
};

// Never destroyed: threads of groups that were never destroyed may look at it until the very end.
State& state() {
  static auto* const it = new State;  // NOLINT(cppcoreguidelines-owning-memory)
  return *it;
}

int wanted_level() {
  const char* const wanted = std::getenv("HOOKLINE_MPI_THREADS");
  if (!wanted || std::string_view(wanted) == "multiple") return MPI_THREAD_MULTIPLE;
  if (std::string_view(wanted) == "serialized") return MPI_THREAD_SERIALIZED;
  throw InvalidArgument(fmt::format("HOOKLINE_MPI_THREADS={}: it may be multiple or serialized", wanted));
}

void await_calls() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (state().calls.load() > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

// MPI calls this first when it is finalised, by us or by the application: threads of groups that were never destroyed
// look at their messages until then.
int on_finalize(MPI_Comm, int, void*, void*) {
  forbid("MPI was finalised");
  await_calls();
  return MPI_SUCCESS;
}

// Runs when the process exits, after Python and what the program destroys at its end. Those who call MPI are waited for
// here already: MPICH has put its locks out of use by the time that it calls on_finalize.
void finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || state().forbidden.load()) return;
  on_finalize(MPI_COMM_NULL, 0, nullptr, nullptr);
  MPI_Finalize();
}

const char* name_of(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  return level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SERIALIZED";
}

}  // namespace

void begin_session() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const Calling calling; !calling) throw ResourceError("the mpi engine: " + calling.why());
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw ResourceError("the mpi engine: MPI was finalised before; make the group earlier, or finalise later");
  }
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    const int wanted = wanted_level();
    check_call(MPI_Init_thread(nullptr, nullptr, wanted, &provided), "MPI_Init_thread");
    std::atexit(finalize);
    introduce(MPI_COMM_WORLD);  // before anything else that makes connections
    // Nobody else calls MPI then: whoever wanted to would have initialised it.
    state().one_at_a_time = std::min(provided, wanted) == MPI_THREAD_SERIALIZED;
  } else {
    check_call(MPI_Query_thread(&provided), "MPI_Query_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE && !state().one_at_a_time) {
    throw Unsupported(fmt::format(
        "the mpi engine calls MPI from several threads, but it was initialised with {}; call MPI_Init_thread "
        "with MPI_THREAD_MULTIPLE, or let the engine initialise it",
        name_of(provided)));
  }
  static bool watched = false;
  if (watched) return;
  int key = MPI_KEYVAL_INVALID;
  check_call(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr), "MPI_Comm_create_keyval");
  check_call(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
  watched = true;
}

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("error {} of MPI", code);
  return {text.data(), static_cast<std::size_t>(length)};
}

void check_call(int code, const char* what) {
  if (code != MPI_SUCCESS) throw ResourceError(fmt::format("{} failed: {}", what, error_text(code)));
}

void forbid(const std::string& why) noexcept {
  try {
    const std::string* none = nullptr;
    // Never freed: whoever reads it may do so at the very end.
    auto* const text = new std::string(why);  // NOLINT(cppcoreguidelines-owning-memory)
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
    if (!state().forbidden.compare_exchange_strong(none, text)) delete text;
  } catch (const std::bad_alloc&) {
    std::abort();  // going on would let MPI write to memory that is not its own any more
  }
}

// Sequentially consistent, both: who finalises sees this call, or this call sees that it is forbidden.
Calling::Calling() noexcept {
  state().calls.fetch_add(1);
  if (state().one_at_a_time.load(std::memory_order_relaxed)) {
    turn_ = std::unique_lock(state().turn);
  }
  why_ = state().forbidden.load();
}

Calling::~Calling() {
  if (turn_) turn_.unlock();
  state().calls.fetch_sub(1);
}

}  // namespace hookline::mpi
