// What an engine between hosts must offer: messages between ranks. The collectives are built of these, once for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/core/export.hpp>
#include <hookline/store/store.hpp>

namespace hookline {

/// One message that was posted. It is under way while this lives: the destructor gives it up where it is not through,
/// and returns only when nothing of the engine's touches its memory any more.
class Message {
 public:
  Message() = default;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  virtual ~Message() = default;

  /// Blocks until it is through: true. False where nudge() was called, now or before, perhaps though it is through; it
  /// may then be waited for again. Throws PeerLost where it cannot come through any more. One thread at a time.
  /// Not `urgent`: nobody minds a millisecond, so that an engine that has to look again and again may sleep between.
  virtual bool wait(bool urgent) = 0;
  /// Ends one wait(), the one under way or else the next. From any thread.
  virtual void nudge() noexcept = 0;
  /// The rank that it came from, once it is through.
  virtual int source() const noexcept = 0;
};

/// A receive takes the message of the same channel and number that the peer sends to this rank. Messages between two
/// ranks whose channels agree, and the last 15 bits of their numbers, are posted in the same order at both ends, and
/// must come in it: an engine that has no more than 15 bits needs no more. Those of kMailChannel all have the number 0.
struct MessageAddress {
  int channel = 0;
  std::uint64_t number = 0;
};

inline constexpr int kEngineLanes = 5;  ///< as many as the embedded backends have: lane 0 is the user's
inline constexpr int kMailChannel = 0;
inline constexpr std::size_t kMailBytes = 8 * 1024;  ///< the most that a message of kMailChannel has

/// One rank's end of a group. Everything may be called from several threads at once. Messages have 1 byte or more, lie
/// in memory that outlives them, and are never longer than the room that the receiver has for them: the backend has
/// seen to that before it posts them. Nothing here waits for a peer.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// A sent message is through when its memory may be used again. These throw PeerLost, and nothing else.
  [[nodiscard]] virtual std::unique_ptr<Message> send(int to, MessageAddress address, const std::byte* data,
                                                      std::size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<Message> receive(int from, MessageAddress address, std::byte* data,
                                                         std::size_t room) = 0;
  /// From whichever rank sends one; posted for kMailChannel only, one at a time.
  [[nodiscard]] virtual std::unique_ptr<Message> receive_any(MessageAddress address, std::byte* data,
                                                             std::size_t room) = 0;

  /// Throws PeerLost where the connection to a rank is known to be lost. Called about ten times a second by those who
  /// wait for it, for engines whose messages do not always notice.
  virtual void check(int rank) = 0;
  /// The rank has said that it leaves and sends nothing more. An engine without connections that close has whoever
  /// waits for a message of that rank that is not through be told.
  virtual void left(int rank) noexcept = 0;
  /// Ends all connections: what is under way throws PeerLost in the threads that wait for it. Peers notice, as they
  /// would notice a death. May be called while others wait, and twice.
  virtual void close() noexcept = 0;

  /// An engine of some of the ranks, in the order given, as Backend::subset. Blocks until all of them have come.
  virtual std::shared_ptr<Engine> subset(const std::vector<int>& ranks, const std::string& name,
                                         Milliseconds timeout) = 0;
};

/// The collectives, lanes, timeouts and errors of a Backend on an engine that is connected to all its peers.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_engine_backend(std::shared_ptr<Engine> engine);

/// What an engine is made from.
struct EngineSetting {
  std::shared_ptr<Store> store = {};  ///< where the ranks meet, for this group alone
  int rank = 0;
  int size = 1;
  Milliseconds timeout = kDefaultTimeout;           ///< of meeting
  std::map<std::string, std::string> options = {};  ///< by name; an engine refuses those that it does not know
  /// A name or number of the host that keeps the store, where there is one: what is reached through the same interface
  /// is reached by everybody.
  std::string reach = {};
};

/// Changes with this header. An engine of another version is refused when it is loaded.
inline constexpr int kEngineVersion = 1;

}  // namespace hookline

/// Stands once in an engine's library, outside all namespaces: what libhookline looks for in libhookline_NAME.so.
/// `make` is a function from const EngineSetting& to std::shared_ptr<Engine>; what it throws reaches the user.
#define HOOKLINE_ENGINE(make)                                                                         \
  extern "C" HOOKLINE_EXPORT int hookline_engine_version() { return ::hookline::kEngineVersion; }     \
  extern "C" HOOKLINE_EXPORT void hookline_make_engine(const ::hookline::EngineSetting* setting,      \
                                                       std::shared_ptr<::hookline::Engine>* engine) { \
    *engine = make(*setting);                                                                         \
  }
