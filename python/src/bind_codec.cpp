// Binds codecs: what reductions of encoded values send.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>

#include "rooms.hpp"
#include "tensor_export.hpp"
#include "tensor_import.hpp"

namespace hookline::python {
namespace {

nb::bytes encode(const Codec& codec, const TensorArg& array, std::uint64_t seed, std::uint64_t step,
                 std::uint64_t bucket, std::uint64_t rank) {
  const Tensor values = array.tensor().contiguous();
  const auto count = static_cast<std::size_t>(values.numel());
  std::vector<std::byte> message(codec.encoded_bytes(count));
  codec.encode({values.data<const float>(), count}, message,
               {.seed = seed, .step = step, .bucket = bucket, .rank = rank});
  return nb::bytes(message.data(), message.size());
}

nb::object decode(const Codec& codec, const nb::bytes& message) {
  const auto bytes = std::as_bytes(std::span(message.c_str(), message.size()));
  const Tensor values = Tensor::empty({static_cast<std::int64_t>(describe_message(bytes).count)});
  codec.decode(bytes, {values.data<float>(), static_cast<std::size_t>(values.numel())});
  return to_numpy(values);
}

}  // namespace

void bind_codec(nb::module_& m) {
  using nb::arg;
  nb::class_<Codec>(m, "Codec", "Packs float32 values into fewer bytes; made by make_codec.")
      .def_prop_ro("name", &Codec::name)
      .def("encoded_bytes", &Codec::encoded_bytes, arg("count"), "The exact size of the message of so many values.")
      .def("encode", &encode, arg("values"), arg("seed") = 0, arg("step") = 0, arg("bucket") = 0, arg("rank") = 0,
           "The message of a float32 array. The numbers are what stochastic rounding draws by.")
      .def("decode", &decode, arg("message"), nb::sig("def decode(self, message: bytes) -> typing.Any"),
           "The values of a message, as a NumPy array. InvalidArgument for damaged bytes.")
      .def("__repr__", [](const Codec& self) { return "<hookline.Codec " + self.name() + ">"; });
  m.def(
      "make_codec", [](const std::string& text) { return std::const_pointer_cast<Codec>(make_codec(text)); },
      arg("spec"), "The codec of a text: 'fp16', 'bf16', 'int8(block=512)', 'int4(block=128, rounding=stochastic)'.");
}

}  // namespace hookline::python
