// Binds PostLocalSGDState and its hook.
#include <memory>
#include <string>
#include <utility>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/hook/post_local_sgd.hpp>

#include "bindings.hpp"
#include "default_group.hpp"
#include "gc_slots.hpp"
#include "py_hook.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

/// Hooks own the native state but not this Python object. hookline.torch caches hooks in a WeakKeyDictionary by this
/// object, so a reference from a hook would keep the entry alive forever.
struct PyPostLocalSGDState {
  std::shared_ptr<PostLocalSGDState> state;
  GroupRefs group_refs;

  PostLocalSGDState* operator->() const { return state.get(); }
};

int traverse(const PyPostLocalSGDState& self, visitproc visit, void* arg) {
  return self.group_refs.traverse(visit, arg);
}

}  // namespace

void bind_post_local_sgd(nb::module_& m) {
  using nb::arg;
  using State = PostLocalSGDState;
  using GroupPtr = std::shared_ptr<ProcessGroup>;
  nb::class_<PyPostLocalSGDState>(
      m, "PostLocalSGDState", nb::type_slots(traverse_slots<PyPostLocalSGDState, traverse>),
      nb::is_weak_referenceable(),
      "The state of post_localSGD_hook, which averages gradients over process_group in the first start_localSGD_iter "
      "steps, then over subgroup, or not at all without post_local_gradient_allreduce.")
      .def(
          "__init__",
          [](PyPostLocalSGDState* self, GroupPtr group, GroupPtr subgroup, std::int64_t start, bool allreduce) {
            group = group_or_default(std::move(group));
            GroupRefs group_refs;
            group = group_refs.track(std::move(group));
            subgroup = group_refs.track(std::move(subgroup));
            auto state = without_gil(
                [&] { return std::make_shared<State>(std::move(group), std::move(subgroup), start, allreduce); });
            new (self) PyPostLocalSGDState{std::move(state), std::move(group_refs)};
          },
          arg("process_group").none(), arg("subgroup").none(), arg("start_localSGD_iter"),
          arg("post_local_gradient_allreduce") = true,
          "The default process_group is the default group, the default subgroup the ranks of this host. Collective.")
      .def_prop_ro("process_group", [](const PyPostLocalSGDState& s) { return untracked(s->process_group); })
      .def_prop_ro(
          "subgroup", [](const PyPostLocalSGDState& s) { return untracked(s->subgroup); },
          nb::sig("def subgroup(self) -> ProcessGroup | None"))
      .def_prop_ro("start_localSGD_iter", [](const PyPostLocalSGDState& s) { return s->start_localSGD_iter; })
      .def_prop_ro("post_local_gradient_allreduce",
                   [](const PyPostLocalSGDState& s) { return s->post_local_gradient_allreduce; })
      .def_prop_rw(
          "iter", [](const PyPostLocalSGDState& s) { return s->iter.load(); },
          [](const PyPostLocalSGDState& s, std::uint64_t iter) { s->iter = iter; },
          "The number of started steps. Set it when resuming a run.")
      .def("__repr__", [](const PyPostLocalSGDState& s) {
        return "<hookline.PostLocalSGDState: step " + std::to_string(s->iter.load()) + ", local from step " +
               std::to_string(s->start_localSGD_iter) + " on>";
      });
  m.def(
      "make_post_local_sgd_hook",
      [](const PyPostLocalSGDState& state) {
        return PyHook{
            std::make_shared<PostLocalSGDHook>(state.state), state->process_group, {}, state.group_refs.copy()};
      },
      arg("state"), "Creates the native hook of a state, equivalent to post_localSGD_hook.");
}

}  // namespace hookline::python
