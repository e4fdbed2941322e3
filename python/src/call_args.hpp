// Unparsed arguments of the collectives: types that appear in the stubs. The bound functions parse the objects.
#pragma once

#include <concepts>

#include <nanobind/nanobind.h>

namespace hookline::python {

/// An unparsed Python object. Each derived type names the accepted Python types.
struct CallArg {
  nanobind::handle object;
  operator nanobind::handle() const { return object; }  // NOLINT(google-explicit-constructor): a plain wrapper
};

struct ArrayArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name("hookline.ArrayLike");
};
struct ArraysArg : CallArg {
  static constexpr auto kType =
      nanobind::detail::const_name("hookline.ArrayLike | collections.abc.Sequence[hookline.ArrayLike]");
};
struct ArrayListsArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name(
      "collections.abc.Sequence[hookline.ArrayLike] | collections.abc.Sequence[collections.abc.Sequence[hookline."
      "ArrayLike]]");
};
/// On the root rank, one array per rank, possibly in a list; on other ranks one array or none.
struct RootArraysArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name(
      "hookline.ArrayLike | collections.abc.Sequence[hookline.ArrayLike] | "
      "collections.abc.Sequence[collections.abc.Sequence[hookline.ArrayLike]]");
};
struct OpArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name("ReduceOp | str | CallOptions");
};
struct RootArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name("int | CallOptions");
};
struct RawTimeoutArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name("float | datetime.timedelta | CallOptions");
};
struct CodecArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name("Codec | str");
};
struct OptsArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name("CallOptions");
};

}  // namespace hookline::python

template <std::derived_from<hookline::python::CallArg> T>
struct nanobind::detail::type_caster<T> {
  NB_TYPE_CASTER(T, T::kType)

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value = T{{source}};
    return true;
  }
};
