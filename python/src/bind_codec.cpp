// Binds codecs.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>

#include "bindings.hpp"
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
  nb::class_<Codec>(m, "Codec", "Encodes float32 values into fewer bytes; created by make_codec.")
      .def_prop_ro("name", &Codec::name)
      .def("encoded_bytes", &Codec::encoded_bytes, arg("count"),
           "Returns the exact size in bytes of a message of count values.")
      .def("encode", &encode, arg("values"), arg("seed") = 0, arg("step") = 0, arg("bucket") = 0, arg("rank") = 0,
           "Encodes a float32 array. seed, step, bucket and rank are the key of stochastic rounding.")
      .def("decode", &decode, arg("message"), nb::sig("def decode(self, message: bytes) -> typing.Any"),
           "Decodes a message to a NumPy array. Raises InvalidArgument if the message is corrupt.")
      .def("__repr__", [](const Codec& self) { return "<hookline.Codec " + self.name() + ">"; });
  m.def(
      "make_codec", [](const std::string& text) { return std::const_pointer_cast<Codec>(make_codec(text)); },
      arg("spec"),
      "Creates a codec from its spec: 'fp16', 'bf16', 'int8(block=512)', 'int4(block=128, rounding=stochastic)'.");
}

}  // namespace hookline::python
