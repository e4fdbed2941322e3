// The arguments of the collectives as they come, under types that the stubs show; reading them is left to the calls.
#pragma once

#include <concepts>

#include <nanobind/nanobind.h>

namespace hookline::python {

/// A Python object that is passed on as it is. Each kind says what may stand there.
struct CallArg {
  nanobind::handle object;
  operator nanobind::handle() const { return object; }  // NOLINT(google-explicit-constructor): it is nothing else
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
/// At the root a list for each rank, or that in a list; elsewhere one array, or nothing.
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
struct TimeArg : CallArg {
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
