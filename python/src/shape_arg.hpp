// Shape arguments, an integer or a sequence of integers, and conversion of shapes to tuples.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <hookline/core/dims.hpp>

namespace hookline::python {

using Shape = std::variant<std::int64_t, std::vector<std::int64_t>>;

inline Dims dims_of(const Shape& shape) {
  if (const auto* one = std::get_if<std::int64_t>(&shape)) return {*one};
  return Dims(std::span(std::get<std::vector<std::int64_t>>(shape)));
}

inline nanobind::tuple tuple_of(const Dims& dims) {
  nanobind::list list;
  for (const std::int64_t extent : dims) list.append(extent);
  return nanobind::tuple(list);
}

}  // namespace hookline::python
