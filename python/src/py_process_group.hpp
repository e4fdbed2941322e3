// Process groups that are Python classes, as C++ calls them.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/trampoline.h>

#include <hookline/group/completion_hooks.hpp>
#include <hookline/group/process_group.hpp>

#include "callback_thread.hpp"
#include "completion_hook.hpp"
#include "group_hold.hpp"
#include "group_methods.hpp"

namespace hookline::python {

/// The C++ side of a Python class derived from ProcessGroup. Each operation calls the method of its name, or of one of
/// its other names, with the arguments that torch.distributed passes; one that the class does not have is Unsupported,
/// naming class and method. What a method raises arrives as an error that turns back into the Python exception.
///
/// rank() and size() are asked of Python once: a group's do not change.
class PyProcessGroup final : public ProcessGroup {
 public:
  NB_TRAMPOLINE(ProcessGroup);
  PyProcessGroup(int rank, int size);
  PyProcessGroup(const PyProcessGroup&) = delete;
  PyProcessGroup& operator=(const PyProcessGroup&) = delete;
  ~PyProcessGroup() override = default;

  int rank() const override;
  int size() const override;
  std::string backend_name() const override;
  std::string group_name() const override;
  std::string description() const override;
  WorkPtr run(Collective collective) override;
  void start_coalescing() override;
  WorkPtr end_coalescing() override;
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  std::shared_ptr<ProcessGroup> split(int color, int key) override;
  Milliseconds timeout() const override;
  void set_timeout(Milliseconds timeout) override;
  std::uint64_t sequence_number() const override;
  void register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor) override;
  void wait_for_hooks(std::optional<Milliseconds> timeout) override;
  void abort(const std::string& cause) override;
  void shutdown() override;

  /// What the base class's own methods give, which an override may call through super().
  int own_rank() const noexcept { return own_rank_; }
  int own_size() const noexcept { return own_size_; }
  std::uint64_t own_sequence_number() const noexcept { return sequence_.load(std::memory_order_relaxed); }
  Milliseconds own_timeout() const noexcept { return timeout_.load(std::memory_order_relaxed); }
  void set_own_timeout(Milliseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }
  /// Throws Unsupported naming the class and the method. Needs the GIL.
  [[noreturn]] void lacks(const char* method) const;
  /// Whether the class has a method of this name of its own. Needs the GIL.
  bool overrides(const char* method) const;
  /// For methods of the base that have nothing to give: Python finds those of the class before it comes there, so that
  /// where the class has this one, it has called super(). Throws Unsupported then. Needs the GIL.
  void refuse_super(const char* method) const;
  std::string class_name() const;

  const std::shared_ptr<HeldReferences>& held_references() const noexcept { return held_references_; }

  CallbackThread& callbacks() noexcept { return callbacks_; }
  HookList& hook_list() noexcept { return hook_list_; }

 private:
  /// What a method of the class returned, and its name; false where the class has no such method.
  struct Answer {
    const char* method = "";
    nb::object result;
    explicit operator bool() const { return result.is_valid(); }
  };
  /// Calls the first method of these names that the class has.
  Answer call(const MethodNames& names, const char* signature, const nb::object& arguments) const;
  /// The same for a method of no arguments, or a property.
  Answer ask(const MethodNames& names) const;
  /// The same for a method that in torch takes the device.
  Answer call_for_device(const MethodNames& names) const;
  /// An answer as what C++ wants of it; a TypeError where it is anything else.
  template <class T>
  T read(const Answer& answer, const char* expected) const;
  std::optional<std::string> ask_text(const MethodNames& names) const;
  /// What a method of no arguments answers, asked once; `own` where the class does not override it.
  int number(const MethodNames& names, std::atomic<int>& known, int own, int least, const char* what) const;
  WorkPtr start(const Collective& collective);

  const int own_rank_;
  const int own_size_;
  mutable std::atomic<int> rank_ = -1;
  mutable std::atomic<int> size_ = -1;
  mutable std::atomic<int> asks_timeout_ = -1;  ///< whether the class has a timeout of its own; -1 while unknown
  std::atomic<Milliseconds> timeout_ = kDefaultTimeout;
  std::atomic<std::uint64_t> sequence_ = 0;
  const std::shared_ptr<HeldReferences> held_references_ = std::make_shared<HeldReferences>();
  HookList hook_list_;
  CallbackThread callbacks_;
  CompletionHooks hooks_;
};

/// A group that is a Python class, else null. What the base has for such a class is its own, since Python itself finds
/// the methods of the class.
inline PyProcessGroup* python_group(const ProcessGroup& group) {
  return dynamic_cast<PyProcessGroup*>(const_cast<ProcessGroup*>(&group));
}

}  // namespace hookline::python
