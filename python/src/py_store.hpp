// The trampoline of stores written in Python, and conversions of keys and values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/trampoline.h>

#include <hookline/store/store.hpp>

namespace hookline::python {

namespace nb = nanobind;

/// A value argument: bytes, or str, which is stored as UTF-8.
struct ValueArg {
  std::string bytes;
};

/// Converts a key to str; invalid UTF-8 becomes surrogate escapes.
nb::str key_to_python(const std::string& key);
nb::bytes value_to_python(const std::string& value);

/// Returns a list of the converted items.
template <class F>
nb::list list_to_python(const std::vector<std::string>& items, F convert) {
  nb::list list;
  for (const std::string& item : items) list.append(convert(item));
  return list;
}

/// The C++ side of a Python class derived from Store. Each operation calls the Python method of the same name, with
/// keys as str, values as bytes and timeouts as timedelta; without an override, the base implementation applies. Python
/// exceptions, and results of the wrong type, become C++ errors that convert back into the Python exceptions.
class PyStore final : public Store {
 public:
  NB_TRAMPOLINE(Store);

  std::string describe() const override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  bool check(const std::vector<std::string>& keys) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  void append(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  void queue_push(const std::string& key, const std::string& value) override;
  std::string queue_pop(const std::string& key, bool block = true) override;
  std::int64_t queue_len(const std::string& key) override;
  void barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout) override;
  bool has_extended_api() const override;
  std::shared_ptr<Store> clone() const override;

 private:
  /// Calls the override, or `base` if there is none.
  template <class Convert, class Base, class... Args>
  auto call(const char* method, Convert convert, Base base, const Args&... args) const;
  /// Calls the override. Throws Unsupported, naming the class and the method, if there is none.
  template <class Convert, class... Args>
  auto call_required(const char* method, Convert convert, const Args&... args) const;
};

}  // namespace hookline::python

template <>
struct nanobind::detail::type_caster<hookline::python::ValueArg> {
  NB_TYPE_CASTER(hookline::python::ValueArg, const_name("str | bytes"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (PyBytes_Check(source.ptr())) {
      value.bytes.assign(PyBytes_AS_STRING(source.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(source.ptr())));
      return true;
    }
    if (!PyUnicode_Check(source.ptr())) return false;
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(source.ptr(), &size);
    if (!text) {
      PyErr_Clear();
      return false;
    }
    value.bytes.assign(text, static_cast<std::size_t>(size));
    return true;
  }
};
