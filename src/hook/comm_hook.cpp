// CommHookInterface: default implementations and result parsing.
#include <hookline/hook/comm_hook.hpp>

#include <cxxabi.h>

#include <cstdlib>
#include <typeinfo>
#include <vector>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "hook/bucket_scheduler.hpp"

namespace hookline {
namespace {

std::string demangled(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : type.name();
}

}  // namespace

CommHookInterface::~CommHookInterface() = default;

std::string CommHookInterface::name() const { return traits_.name.empty() ? demangled(typeid(*this)) : traits_.name; }

void CommHookInterface::begin_step(const HookStep&) {}
void CommHookInterface::end_step(const HookStep&) {}
void CommHookInterface::on_step_failed(const std::string&) {}
void CommHookInterface::save(StateWriter&) const {}
void CommHookInterface::load(StateReader&) {}

Tensor tensor_of(const HookResult& result) {
  if (const auto* tensor = std::get_if<Tensor>(&result.value_)) return *tensor;
  const auto* list = std::get_if<std::vector<Tensor>>(&result.value_);
  if (list && list->size() == 1) return list->front();
  const std::any* object = list ? nullptr : &std::get<HookResult::Opaque>(result.value_).object;
  throw InvalidArgument(
      fmt::format("invalid value in a communication hook's Future: expected a Tensor or a list of one Tensor, got {}",
                  list ? fmt::format("a list of {}", list->size())
                       : (object->has_value() ? demangled(object->type()) : "nothing")));
}

Future<Tensor> run_and_parse(HookPtr hook, GradBucket& bucket) {
  const Tensor buffer = bucket.buffer();  // the hook may call set_buffer
  const HookResult result = co_await hook->run_hook(bucket);
  const Tensor reduced = hook->parse_hook_result(result);
  const auto label = [&] { return fmt::format("bucket {} (hook {})", bucket.index(), hook->name()); };
  hook::check_result(label, buffer, reduced);
  co_return reduced.contiguous();
}

}  // namespace hookline
