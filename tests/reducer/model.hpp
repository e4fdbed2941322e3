// Helpers for reducer tests: models with gradients that every rank can compute for all ranks.
#pragma once

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <hookline/reducer/reducer.hpp>

namespace hookline::testing {

inline float gradient_of(int rank, std::size_t parameter, std::uint64_t step, std::int64_t i) {
  return static_cast<float>(
      std::sin(static_cast<double>(1 + rank) * static_cast<double>(i + 7) + static_cast<double>(parameter * 3 + step)));
}

inline Tensor gradient_like(const Parameter& p, int rank, std::size_t parameter, std::uint64_t step) {
  const Tensor t = Tensor::empty(p.tensor.shape(), p.tensor.dtype());
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    if (t.dtype() == DType::f32) t.data<float>()[i] = gradient_of(rank, parameter, step, i);
    else t.flatten().slice(0, i, i + 1).fill(gradient_of(rank, parameter, step, i));
  }
  return t;
}

inline std::vector<Parameter> model(std::size_t count, std::int64_t width = 40) {
  std::vector<Parameter> parameters;
  for (std::size_t p = 0; p < count; ++p) {
    parameters.push_back({"p" + std::to_string(p), Tensor::zeros({width, static_cast<std::int64_t>(p % 3 + 1)})});
  }
  return parameters;
}

/// Throws unless `t` is the mean of the ranks' gradients times `factor`.
inline void expect_mean(const Tensor& t, int ranks, std::size_t parameter, std::uint64_t step, double factor = 1) {
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) sum += gradient_of(r, parameter, step, i);
    const double wanted = factor * sum / ranks;
    const double is = t.flatten().slice(0, i, i + 1).item<double>();
    if (std::abs(is - wanted) > 1e-5 * std::max(1.0, factor) + (size_of(t.dtype()) < 4 ? 1e-2 : 0)) {
      throw std::runtime_error("parameter " + std::to_string(parameter) + ", step " + std::to_string(step) +
                               ", element " + std::to_string(i) + " is " + std::to_string(is) + ", not " +
                               std::to_string(wanted));
    }
  }
}

/// Runs a step with gradients passed to mark_ready and checks that they hold the means.
inline void step_with_copies(Reducer& reducer, std::uint64_t step, const std::vector<std::size_t>& order,
                             double factor = 1) {
  ProcessGroup& group = *reducer.group();
  std::vector<Tensor> gradients(reducer.parameters().size());
  for (const std::size_t p : order) {
    gradients[p] = gradient_like(reducer.parameters()[p], group.rank(), p, step);
    reducer.mark_ready(p, gradients[p]);
  }
  reducer.finalize();
  for (const std::size_t p : order) expect_mean(gradients[p], group.size(), p, step, factor);
}

inline std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

/// Returns the message of the E that `f` throws.
template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace hookline::testing
