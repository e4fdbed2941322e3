// Initializes and finalizes MPI, and guards every call of it.
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

// Never destroyed: threads of leaked groups may use it until the process ends.
State& state() {
  static auto* const it = new State;  // NOLINT(cppcoreguidelines-owning-memory)
  return *it;
}

int wanted_level() {
  const char* const wanted = std::getenv("HOOKLINE_MPI_THREADS");
  if (!wanted || std::string_view(wanted) == "multiple") return MPI_THREAD_MULTIPLE;
  if (std::string_view(wanted) == "serialized") return MPI_THREAD_SERIALIZED;
  throw InvalidArgument(
      fmt::format("mpi: HOOKLINE_MPI_THREADS is invalid: expected multiple or serialized, got '{}'", wanted));
}

void await_calls() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (state().calls.load() > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

// MPI_Finalize calls this first, in Hookline or in the application. Threads of leaked groups poll their requests until
// then.
int on_finalize(MPI_Comm, int, void*, void*) {
  forbid("mpi: MPI was finalized");
  await_calls();
  return MPI_SUCCESS;
}

// Runs at exit, after Python has ended. Waits for active MPI calls here and not only in on_finalize: MPICH has already
// disabled its locks when it calls on_finalize.
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
  if (const Calling calling; !calling) throw ResourceError(calling.why());
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw ResourceError("mpi: MPI was already finalized. Create the group earlier, or call MPI_Finalize later.");
  }
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    const int wanted = wanted_level();
    check_call(MPI_Init_thread(nullptr, nullptr, wanted, &provided), "MPI_Init_thread");
    std::atexit(finalize);
    introduce(MPI_COMM_WORLD);  // before any other traffic opens connections
    // Hookline initialized MPI, so it is the only caller and can serialize the calls.
    state().one_at_a_time = std::min(provided, wanted) == MPI_THREAD_SERIALIZED;
  } else {
    check_call(MPI_Query_thread(&provided), "MPI_Query_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE && !state().one_at_a_time) {
    throw Unsupported(fmt::format(
        "mpi: wrong thread level of MPI: expected MPI_THREAD_MULTIPLE, got {}. Call MPI_Init_thread with "
        "MPI_THREAD_MULTIPLE, or let Hookline initialize MPI.",
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
    // Never freed: threads may read it until the process ends.
    auto* const text = new std::string(why);  // NOLINT(cppcoreguidelines-owning-memory)
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
    if (!state().forbidden.compare_exchange_strong(none, text)) delete text;
  } catch (const std::bad_alloc&) {
    std::abort();  // otherwise MPI would write to freed memory
  }
}

// Dekker handshake, all seq_cst: a caller increments `calls`, then loads `forbidden`; finalization stores `forbidden`,
// then loads `calls`. Either finalization waits for the call, or the call sees that MPI is finalized.
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
