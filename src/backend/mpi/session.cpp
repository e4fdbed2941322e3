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

#include "backend/mpi/identity_exchange.hpp"

namespace hookline::mpi {
namespace {

struct State {
  std::atomic<const std::string*> poison_reason = nullptr;
  std::atomic<int> active_calls = 0;
  std::atomic<bool> serialized = false;
  std::recursive_mutex call_mutex;
};

// Never destroyed: threads of leaked groups may use it until the process ends.
State& state() {
  static auto* const it = new State;  // NOLINT(cppcoreguidelines-owning-memory)
  return *it;
}

int required_thread_level() {
  const char* const requested = std::getenv("HOOKLINE_MPI_THREADS");
  if (!requested || std::string_view(requested) == "multiple") return MPI_THREAD_MULTIPLE;
  if (std::string_view(requested) == "serialized") return MPI_THREAD_SERIALIZED;
  throw InvalidArgument(
      fmt::format("mpi: HOOKLINE_MPI_THREADS is invalid: expected multiple or serialized, got '{}'", requested));
}

void wait_for_active_calls() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (state().active_calls.load() > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

// MPI_Finalize calls this at its start, whether Hookline or the application calls MPI_Finalize. Ends the
// MPI calls of leaked groups, whose threads may still poll their requests.
int on_finalize(MPI_Comm, int, void*, void*) {
  poison("mpi: MPI was finalized");
  wait_for_active_calls();
  return MPI_SUCCESS;
}

// Runs at exit, after Python has ended. Waits for active MPI calls here and not only in on_finalize: MPICH has already
// disabled its locks when it calls on_finalize.
void finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || state().poison_reason.load()) return;
  on_finalize(MPI_COMM_NULL, 0, nullptr, nullptr);
  MPI_Finalize();
}

const char* thread_level_name(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  return level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SERIALIZED";
}

}  // namespace

void init_mpi() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const MpiCallGuard guard; !guard) throw ResourceError(guard.reason());
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw ResourceError("mpi: MPI was already finalized. Create the group earlier, or call MPI_Finalize later.");
  }
  int initialized = 0;
  int provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    const int required = required_thread_level();
    check_call(MPI_Init_thread(nullptr, nullptr, required, &provided), "MPI_Init_thread");
    std::atexit(finalize);
    exchange_identities(MPI_COMM_WORLD);  // before any other traffic opens connections
    // Hookline initialized MPI, so it is the only caller and can serialize the calls.
    state().serialized = std::min(provided, required) == MPI_THREAD_SERIALIZED;
  } else {
    check_call(MPI_Query_thread(&provided), "MPI_Query_thread");
  }
  if (provided < MPI_THREAD_MULTIPLE && !state().serialized) {
    throw Unsupported(
        fmt::format("mpi: wrong thread level of MPI: expected MPI_THREAD_MULTIPLE, got {}. Call MPI_Init_thread with "
                    "MPI_THREAD_MULTIPLE, or let Hookline initialize MPI.",
                    thread_level_name(provided)));
  }
  static bool finalize_hook_installed = false;
  if (finalize_hook_installed) return;
  int key = MPI_KEYVAL_INVALID;
  check_call(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr), "MPI_Comm_create_keyval");
  check_call(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
  finalize_hook_installed = true;
}

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("error {} of MPI", code);
  return {text.data(), static_cast<std::size_t>(length)};
}

void check_call(int code, const char* call) {
  if (code != MPI_SUCCESS) throw ResourceError(fmt::format("{} failed: {}", call, error_text(code)));
}

void poison(const std::string& reason) noexcept {
  try {
    const std::string* none = nullptr;
    // Never freed: threads may read it until the process ends.
    auto* const text = new std::string(reason);  // NOLINT(cppcoreguidelines-owning-memory)
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory)
    if (!state().poison_reason.compare_exchange_strong(none, text)) delete text;
  } catch (const std::bad_alloc&) {
    std::abort();  // otherwise MPI would write to freed memory
  }
}

// Dekker handshake, all seq_cst: a caller increments `active_calls`, then loads `poison_reason`; finalization stores
// `poison_reason`, then loads `active_calls`. Either finalization waits for the call, or the call sees `poison_reason`.
MpiCallGuard::MpiCallGuard() noexcept {
  state().active_calls.fetch_add(1);
  if (state().serialized.load(std::memory_order_relaxed)) {
    lock_ = std::unique_lock(state().call_mutex);
  }
  reason_ = state().poison_reason.load();
}

MpiCallGuard::~MpiCallGuard() {
  if (lock_) lock_.unlock();
  state().active_calls.fetch_sub(1);
}

}  // namespace hookline::mpi
