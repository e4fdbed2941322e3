// Optimizer: argument checks, state by parameter name, and serialization.
#include <hookline/optimizer/optimizer.hpp>

#include <algorithm>
#include <bit>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

namespace hookline {
namespace {

constexpr std::string_view kMagic = "hookline optimizer state 1";

bool is_stepped(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

void check_step(const std::string& optimizer, const std::string& name, const Tensor& parameter,
                const Tensor& gradient) {
  if (parameter.dtype() != gradient.dtype() || parameter.shape() != gradient.shape()) {
    throw InvalidArgument(fmt::format("{}: the gradient of parameter '{}' must be {}, got {}", optimizer, name,
                                      to_string(parameter), to_string(gradient)));
  }
  if (!is_stepped(parameter.dtype())) {
    throw Unsupported(fmt::format("{}: parameter '{}' has an unsupported dtype: expected float32 or float64, got {}",
                                  optimizer, name, to_string(parameter)));
  }
  if (parameter.read_only()) {
    throw InvalidArgument(fmt::format("{}: parameter '{}' is read-only", optimizer, name));
  }
}

}  // namespace

Optimizer::Optimizer(std::string name) : name_(std::move(name)) {}
Optimizer::~Optimizer() = default;

Optimizer::Slot& Optimizer::slot_of(const std::string& name, const Tensor& parameter) {
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Slot>& found = slots_[name];
    if (!found) found = std::make_unique<Slot>();
    slot = found.get();
  }
  slot->tensors.resize(std::max(slot->tensors.size(), state_names().size()));
  for (const std::optional<Tensor>& kept : slot->tensors) {
    if (kept && (kept->shape() != parameter.shape() || kept->dtype() != parameter.dtype())) {
      throw InvalidArgument(
          fmt::format("{}: the state of parameter '{}' is of another model: expected {}, got {}. Use a separate "
                      "optimizer for each model.",
                      name_, name, to_string(parameter), to_string(*kept)));
    }
  }
  return *slot;
}

std::byte* Optimizer::tensor_of(Slot& slot, std::size_t number, const Arrays& arrays) {
  std::optional<Tensor>& tensor = slot.tensors[number];
  if (!tensor) tensor = Tensor::zeros(arrays.like.shape(), arrays.dtype);
  return tensor->mutable_bytes();
}

void Optimizer::step(const std::string& name, const Tensor& parameter, const Tensor& gradient, double scale) {
  check_step(name_, name, parameter, gradient);
  Slot& slot = slot_of(name, parameter);
  ++slot.step;
  if (parameter.numel() == 0) return;
  const Tensor flat = parameter.contiguous();  // the parameter itself, or a copy
  const Tensor by = gradient.contiguous();
  apply(slot,
        {.dtype = flat.dtype(),
         .parameters = flat.mutable_bytes(),
         .gradients = by.bytes(),
         .count = static_cast<std::size_t>(flat.numel()),
         .like = parameter},
        scale);
  if (!parameter.is_contiguous()) parameter.copy_from(flat);
}

void Optimizer::step(const std::vector<NamedGradient>& all, double scale) {
  for (const NamedGradient& one : all) check_step(name_, one.name, one.parameter, one.gradient);
  for (const NamedGradient& one : all) step(one.name, one.parameter, one.gradient, scale);
}

void Optimizer::set_options(const Options& some) {
  Options all = options();
  for (const auto& [option, value] : some) {
    const auto found = all.find(option);
    if (found == all.end()) {
      std::vector<std::string> known;
      for (const auto& [other, unused] : all) known.push_back(other);
      throw InvalidArgument(
          fmt::format("{}: unknown option {}: expected one of {}", name_, option, fmt::join(known, ", ")));
    }
    found->second = value;
  }
  assign(all);
}

std::string Optimizer::text() const {
  std::vector<std::string> parts;
  for (const auto& [option, value] : options()) parts.push_back(fmt::format("{}={}", option, value));
  return fmt::format("{}({})", name_, fmt::join(parts, ", "));
}

std::map<std::string, ParameterState> Optimizer::state() const {
  const std::lock_guard lock(mutex_);
  const std::vector<std::string>& names = state_names();
  std::map<std::string, ParameterState> all;
  for (const auto& [parameter, slot] : slots_) {
    ParameterState& one = all[parameter];
    one.step = slot->step;
    for (std::size_t i = 0; i < slot->tensors.size(); ++i) {
      if (slot->tensors[i]) one.tensors[names[i]] = slot->tensors[i]->clone();
    }
  }
  return all;
}

void Optimizer::set_state(const std::map<std::string, ParameterState>& state) {
  const std::vector<std::string>& names = state_names();
  std::unordered_map<std::string, std::unique_ptr<Slot>> slots;
  for (const auto& [parameter, one] : state) {
    auto slot = std::make_unique<Slot>();
    slot->step = one.step;
    slot->tensors.resize(names.size());
    for (const auto& [tensor, value] : one.tensors) {
      const auto place = std::find(names.begin(), names.end(), tensor);
      if (place == names.end() || !is_stepped(value.dtype())) {
        throw InvalidArgument(
            fmt::format("{}: invalid state tensor '{}' of parameter '{}': expected {} in float32 or float64, got {}",
                        name_, tensor, parameter, fmt::join(names, ", "), to_string(value)));
      }
      slot->tensors[static_cast<std::size_t>(place - names.begin())] = value.clone();
    }
    slots.emplace(parameter, std::move(slot));
  }
  const std::lock_guard lock(mutex_);
  slots_ = std::move(slots);
}

void Optimizer::save(StateWriter& to) const {
  to.text(name_);
  const Options all = options();
  to.number(all.size());
  for (const auto& [option, value] : all) {
    to.text(option);
    to.number(std::bit_cast<std::uint64_t>(value));
  }
  const std::map<std::string, ParameterState> kept = state();
  to.number(kept.size());
  for (const auto& [parameter, one] : kept) {
    to.text(parameter);
    to.number(one.step);
    to.number(one.tensors.size());
    for (const auto& [name, tensor] : one.tensors) {
      to.text(name);
      to.tensor(tensor);
    }
  }
}

void Optimizer::load(StateReader& from) {
  if (const std::string of = from.text(); of != name_) {
    throw InvalidArgument(fmt::format("load: the state is of the optimizer {}: expected {}", of, name_));
  }
  Options all;
  for (std::uint64_t left = from.number(); left > 0; --left) {
    const std::string option = from.text();
    all[option] = std::bit_cast<double>(from.number());
  }
  std::map<std::string, ParameterState> kept;
  for (std::uint64_t left = from.number(); left > 0; --left) {
    ParameterState& one = kept[from.text()];
    one.step = from.number();
    for (std::uint64_t tensors = from.number(); tensors > 0; --tensors) {
      const std::string name = from.text();
      one.tensors[name] = from.tensor();
    }
  }
  set_state(kept);
  set_options(all);
}

std::vector<std::byte> save_state(const Optimizer& optimizer) {
  StateWriter writer;
  writer.text(kMagic);
  optimizer.save(writer);
  return writer.bytes();
}

void load_state(Optimizer& optimizer, std::span<const std::byte> state) {
  StateReader reader(state);
  if (reader.text() != kMagic) throw InvalidArgument("load_state: these bytes are not the state of an optimizer");
  optimizer.load(reader);
  reader.expect_end();
}

}  // namespace hookline
