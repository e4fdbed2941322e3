// The trampoline of process groups written in Python.
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
#include "group_methods.hpp"
#include "group_refs.hpp"

namespace hookline::python {

/// The C++ side of a Python class derived from ProcessGroup. Each operation calls the Python method of its name, or of
/// an alias, with the arguments of torch.distributed. A missing method throws Unsupported, naming class and method.
/// Python exceptions become C++ errors that convert back into the same exceptions.
///
/// rank() and size() are constant, so Python is called once for each.
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
  WorkPtr run(Operation collective) override;
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

  /// Return the results of the base class's methods, which overrides call through super().
  int base_rank() const noexcept { return base_rank_; }
  int base_size() const noexcept { return base_size_; }
  std::uint64_t base_sequence_number() const noexcept { return sequence_.load(std::memory_order_relaxed); }
  Milliseconds base_timeout() const noexcept { return timeout_.load(std::memory_order_relaxed); }
  void set_base_timeout(Milliseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }
  /// Throws Unsupported naming the class and the method. Needs the GIL.
  [[noreturn]] void throw_unsupported(const char* method) const;
  /// True if the class overrides this method. Needs the GIL.
  bool overrides(const char* method) const;
  /// Throws Unsupported if the class overrides `method`. Called by base methods without an implementation: Python
  /// resolves overrides first, so reaching the base method then means that the override called super(). Needs the GIL.
  void throw_if_super_call(const char* method) const;
  std::string class_name() const;

  const std::shared_ptr<GroupRefCounter>& ref_counter() const noexcept { return ref_counter_; }

  CallbackThread& callback_thread() noexcept { return callback_thread_; }
  CompletionHookList& hook_list() noexcept { return hook_list_; }

 private:
  /// The name and the result of a called method; false if the class has no such method.
  struct CallResult {
    const char* method = "";
    nb::object result;
    explicit operator bool() const { return result.is_valid(); }
  };
  /// Calls the first of these methods that the class has.
  CallResult call(const MethodNames& names, const char* signature, const nb::object& arguments) const;
  /// As call(), for a method without arguments or a property.
  CallResult query(const MethodNames& names) const;
  /// As call(), for a method that takes the device in torch.
  CallResult call_for_device(const MethodNames& names) const;
  /// Converts the result; throws a TypeError if it has another type.
  template <class T>
  T convert(const CallResult& answer, const char* expected) const;
  std::optional<std::string> query_string(const MethodNames& names) const;
  /// Returns the result of a method without arguments, cached; `base_value` if the class does not override it.
  int cached_int(const MethodNames& names, std::atomic<int>& cache, int base_value, int minimum,
                 const char* expected) const;
  WorkPtr start(const Operation& collective);

  const int base_rank_;
  const int base_size_;
  mutable std::atomic<int> rank_ = -1;
  mutable std::atomic<int> size_ = -1;
  mutable std::atomic<int> overrides_timeout_ = -1;  ///< -1 while unknown
  std::atomic<Milliseconds> timeout_ = kDefaultTimeout;
  std::atomic<std::uint64_t> sequence_ = 0;
  const std::shared_ptr<GroupRefCounter> ref_counter_ = std::make_shared<GroupRefCounter>();
  CompletionHookList hook_list_;
  CallbackThread callback_thread_;
  CompletionHooks completion_hooks_;
};

/// Returns the trampoline of a group written in Python, else null. Bound base methods use it to return the base class's
/// results, since Python has already resolved overrides.
inline PyProcessGroup* as_python_group(const ProcessGroup& group) {
  return dynamic_cast<PyProcessGroup*>(const_cast<ProcessGroup*>(&group));
}

}  // namespace hookline::python
