// The names of the rooms kernel and codec in use: values in fewer bytes, and the loops that make them so.
#include <cmath>
#include <cstdio>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

int main() {
  std::vector<float> values(1024), decoded(1024), error(1024);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(float(i));

  // Four bits for each value, and a scale for 128 of them. The same text is what hooks are named by.
  const hl::CodecOptions options = {.bits = 4, .block = 128, .rounding = hl::CodecOptions::Rounding::stochastic};
  const hl::CodecPtr codec = hl::make_codec(options);
  expect(hl::make_codec("int4(range=affine, rounding=stochastic)")->name() == codec->name());

  // Stochastic rounding draws its numbers by a key: the same key, the same bytes.
  std::vector<std::byte> message(codec->encoded_bytes(values.size()));
  codec->encode(values, message, hl::RoundingKey{.seed = 1, .step = 2, .bucket = 0, .rank = 3});
  expect(message.size() > hl::kMessageHeader + values.size() / 2 && message.size() < values.size());

  // A message says what it is.
  const hl::MessageInfo info = hl::describe_message(message);
  expect(info.count == values.size() && info.options == options);
  hl::make_codec(info.options)->decode(message, decoded);
  expect(std::abs(decoded[5] - values[5]) < 0.2f);

  // What is lost is remembered, and goes with the next message.
  const hl::CodecPtr plain = hl::make_codec("bf16");
  message.resize(plain->encoded_bytes(values.size()));
  plain->encode_with_error(values, error, message);
  plain->decode(message, decoded);
  expect(decoded[5] + error[5] == values[5]);

  // Two messages become their mean in one pass.
  plain->decode_two(message, message, 0.5f, error);
  expect(error == decoded);

  // The loops run in the best instructions of this processor, with the same bits on all.
  std::printf("the loops run on %s\n", hl::cpu_targets().back().c_str());
  expect(hl::squared_norm(hl::Tensor::full({3}, 2.0)).item<float>() == 12.0f);
}
