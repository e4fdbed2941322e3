// Optimizer: argument checks, state by parameter name, and serialization.
#include <hookline/optimizer/optimizer.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

namespace hookline {
namespace {

constexpr std::string_view kMagic = "hookline optimizer state 1";

bool is_supported(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

void check_step(const std::string& optimizer, const std::string& name, const Tensor& parameter,
                const Tensor& gradient) {
  if (parameter.dtype() != gradient.dtype() || parameter.shape() != gradient.shape()) {
    throw InvalidArgument(fmt::format("{}: the gradient of parameter '{}' must be {}, got {}", optimizer, name,
                                      to_string(parameter), to_string(gradient)));
  }
  if (!is_supported(parameter.dtype())) {
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

Optimizer::ParameterSlot& Optimizer::find_or_add_slot(const std::string& name, const Tensor& parameter) {
  ParameterSlot* slot = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<ParameterSlot>& found = slots_[name];
    if (!found) found = std::make_unique<ParameterSlot>();
    slot = found.get();
  }
  slot->tensors.resize(std::max(slot->tensors.size(), state_names().size()));
  for (const std::optional<Tensor>& tensor : slot->tensors) {
    if (tensor && (tensor->shape() != parameter.shape() || tensor->dtype() != parameter.dtype())) {
      throw InvalidArgument(
          fmt::format("{}: the state of parameter '{}' does not match the model: expected {}, got {}. Use a separate "
                      "optimizer for each model.",
                      name_, name, to_string(parameter), to_string(*tensor)));
    }
  }
  return *slot;
}

std::byte* Optimizer::state_data(ParameterSlot& slot, std::size_t index, const StepArrays& arrays) {
  std::optional<Tensor>& tensor = slot.tensors[index];
  if (!tensor) tensor = Tensor::zeros(arrays.parameter.shape(), arrays.dtype);
  return tensor->mutable_bytes();
}

void Optimizer::step(const std::string& name, const Tensor& parameter, const Tensor& gradient, double scale) {
  check_step(name_, name, parameter, gradient);
  ParameterSlot& slot = find_or_add_slot(name, parameter);
  ++slot.step;
  if (parameter.numel() == 0) return;
  const Tensor flat_parameter = parameter.contiguous();  // the parameter itself, or a copy
  const Tensor flat_gradient = gradient.contiguous();
  apply_step(slot,
             {.dtype = flat_parameter.dtype(),
              .parameters = flat_parameter.mutable_bytes(),
              .gradients = flat_gradient.bytes(),
              .count = static_cast<std::size_t>(flat_parameter.numel()),
              .parameter = parameter},
             scale);
  if (!parameter.is_contiguous()) parameter.copy_from(flat_parameter);
}

void Optimizer::step(const std::vector<NamedGradient>& gradients, double scale) {
  for (const NamedGradient& item : gradients) check_step(name_, item.name, item.parameter, item.gradient);
  for (const NamedGradient& item : gradients) step(item.name, item.parameter, item.gradient, scale);
}

void Optimizer::set_options(const Options& changes) {
  Options all = options();
  for (const auto& [option, value] : changes) {
    const auto found = all.find(option);
    if (found == all.end()) {
      std::vector<std::string> known;
      for (const auto& [other, unused] : all) known.push_back(other);
      throw InvalidArgument(
          fmt::format("{}: unknown option {}: expected one of {}", name_, option, fmt::join(known, ", ")));
    }
    found->second = value;
  }
  assign_options(all);
}

std::string Optimizer::spec() const {
  std::vector<std::string> terms;
  for (const auto& [option, value] : options()) terms.push_back(fmt::format("{}={}", option, value));
  return fmt::format("{}({})", name_, fmt::join(terms, ", "));
}

std::map<std::string, ParameterState> Optimizer::state() const {
  const std::lock_guard lock(mutex_);
  const std::vector<std::string>& names = state_names();
  std::map<std::string, ParameterState> all;
  for (const auto& [parameter, slot] : slots_) {
    ParameterState& entry = all[parameter];
    entry.step = slot->step;
    for (std::size_t i = 0; i < slot->tensors.size(); ++i) {
      if (slot->tensors[i]) entry.tensors[names[i]] = slot->tensors[i]->clone();
    }
  }
  return all;
}

void Optimizer::set_state(const std::map<std::string, ParameterState>& state) {
  const std::vector<std::string>& names = state_names();
  std::unordered_map<std::string, std::unique_ptr<ParameterSlot>> slots;
  for (const auto& [parameter, one] : state) {
    auto slot = std::make_unique<ParameterSlot>();
    slot->step = one.step;
    slot->tensors.resize(names.size());
    for (const auto& [tensor, value] : one.tensors) {
      const auto position = std::find(names.begin(), names.end(), tensor);
      if (position == names.end() || !is_supported(value.dtype())) {
        throw InvalidArgument(
            fmt::format("{}: invalid state tensor '{}' of parameter '{}': expected {} in float32 or float64, got {}",
                        name_, tensor, parameter, fmt::join(names, ", "), to_string(value)));
      }
      slot->tensors[static_cast<std::size_t>(position - names.begin())] = value.clone();
    }
    slots.emplace(parameter, std::move(slot));
  }
  const std::lock_guard lock(mutex_);
  slots_ = std::move(slots);
}

void Optimizer::save(StateWriter& writer) const {
  writer.text(name_);
  const Options all = options();
  writer.integer(all.size());
  for (const auto& [option, value] : all) {
    writer.text(option);
    writer.number(value);
  }
  const std::map<std::string, ParameterState> states = state();
  writer.integer(states.size());
  for (const auto& [parameter, one] : states) {
    writer.text(parameter);
    writer.integer(one.step);
    writer.integer(one.tensors.size());
    for (const auto& [name, tensor] : one.tensors) {
      writer.text(name);
      writer.tensor(tensor);
    }
  }
}

void Optimizer::load(StateReader& reader) {
  if (const std::string saved_name = reader.text(); saved_name != name_) {
    throw InvalidArgument(
        fmt::format("load_state: expected the state of the optimizer {}, got that of {}", name_, saved_name));
  }
  Options all;
  for (std::uint64_t remaining = reader.integer(); remaining > 0; --remaining) {
    const std::string option = reader.text();
    all[option] = reader.number();
  }
  std::map<std::string, ParameterState> states;
  for (std::uint64_t remaining = reader.integer(); remaining > 0; --remaining) {
    ParameterState& entry = states[reader.text()];
    entry.step = reader.integer();
    for (std::uint64_t remaining_tensors = reader.integer(); remaining_tensors > 0; --remaining_tensors) {
      const std::string name = reader.text();
      entry.tensors[name] = reader.tensor();
    }
  }
  set_state(states);
  set_options(all);
}

std::vector<std::byte> save_state(const Optimizer& optimizer) {
  StateWriter writer;
  writer.text(kMagic);
  optimizer.save(writer);
  return std::move(writer).state();
}

void load_state(Optimizer& optimizer, std::span<const std::byte> state) {
  StateReader reader(state);
  if (reader.text() != kMagic) throw InvalidArgument("load_state: these bytes are not the state of an optimizer");
  optimizer.load(reader);
  reader.expect_end();
}

}  // namespace hookline
