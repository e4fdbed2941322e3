// Trains a small network on handwritten digits in C++, data-parallel. The gradients are views of the buckets.
//
//   hookline run -n 2 build/dev/examples/example_digits examples/digits/digits.bin [hook] [epochs] [optimizer]
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <hookline/hookline.hpp>
namespace hl = hookline;

namespace {

constexpr std::size_t kPixels = 64, kHidden = 128, kDigits = 10;
constexpr std::size_t kBatch = 64;  // over all ranks
constexpr std::size_t kTrained = 1536;

struct Picture {
  std::array<float, kPixels> pixels;
  std::size_t digit;
};

std::vector<Picture> load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> raw((std::istreambuf_iterator<char>(file)), {});
  if (raw.empty() || raw.size() % (kPixels + 1) != 0) throw std::runtime_error(path + ": expected records of 65 bytes");
  std::vector<Picture> pictures(raw.size() / (kPixels + 1));
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const char* record = raw.data() + i * (kPixels + 1);
    for (std::size_t p = 0; p < kPixels; ++p) pictures[i].pixels[p] = static_cast<float>(record[p]) / 16;
    pictures[i].digit = static_cast<std::size_t>(record[kPixels]);
  }
  std::shuffle(pictures.begin(), pictures.end(), std::mt19937(0));  // the same order on every rank
  return pictures;
}

struct Network {
  hl::Tensor w1 = hl::Tensor::zeros({kPixels, kHidden}), b1 = hl::Tensor::zeros({kHidden});
  hl::Tensor w2 = hl::Tensor::zeros({kHidden, kDigits}), b2 = hl::Tensor::zeros({kDigits});

  std::vector<hl::Parameter> parameters() const { return {{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}}; }

  void randomize() const {
    std::mt19937 random(1);
    for (const auto& [weights, spread] : {std::pair(w1, 0.15f), std::pair(w2, 0.1f)}) {
      std::normal_distribution<float> normal(0, spread);
      std::generate_n(weights.data<float>(), weights.numel(), [&] { return normal(random); });
    }
  }

  void forward(const Picture& picture, std::array<float, kHidden>& hidden, std::array<float, kDigits>& scores) const {
    std::copy_n(b1.data<float>(), kHidden, hidden.begin());
    for (std::size_t p = 0; p < kPixels; ++p) {
      const float* row = w1.data<float>() + p * kHidden;
      for (std::size_t h = 0; h < kHidden; ++h) hidden[h] += picture.pixels[p] * row[h];
    }
    for (float& h : hidden) h = std::max(h, 0.0f);
    std::copy_n(b2.data<float>(), kDigits, scores.begin());
    for (std::size_t h = 0; h < kHidden; ++h) {
      for (std::size_t d = 0; d < kDigits; ++d) scores[d] += hidden[h] * w2.data<float>()[h * kDigits + d];
    }
  }
};

/// Adds the gradients of the mean loss over the batch to `gradients`.
void backward(const Network& net, const std::vector<const Picture*>& batch, const Network& gradients) {
  std::array<float, kHidden> hidden;
  std::array<float, kDigits> slope;
  for (const Picture* picture : batch) {
    net.forward(*picture, hidden, slope);
    const float largest = *std::max_element(slope.begin(), slope.end());
    for (float& s : slope) s = std::exp(s - largest);
    const float sum = std::accumulate(slope.begin(), slope.end(), 0.0f);
    for (float& s : slope) s /= sum;
    slope[picture->digit] -= 1;
    for (float& s : slope) s /= static_cast<float>(batch.size());
    for (std::size_t d = 0; d < kDigits; ++d) gradients.b2.data<float>()[d] += slope[d];
    for (std::size_t h = 0; h < kHidden; ++h) {
      float back = 0;
      for (std::size_t d = 0; d < kDigits; ++d) {
        gradients.w2.data<float>()[h * kDigits + d] += hidden[h] * slope[d];
        back += slope[d] * net.w2.data<float>()[h * kDigits + d];
      }
      if (hidden[h] == 0) continue;
      gradients.b1.data<float>()[h] += back;
      for (std::size_t p = 0; p < kPixels; ++p)
        gradients.w1.data<float>()[p * kHidden + h] += picture->pixels[p] * back;
    }
  }
}

double accuracy(const Network& net, const std::vector<Picture>& pictures) {
  std::size_t right = 0;
  std::array<float, kHidden> hidden;
  std::array<float, kDigits> scores;
  for (std::size_t i = kTrained; i < pictures.size(); ++i) {
    net.forward(pictures[i], hidden, scores);
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    right += static_cast<std::size_t>(best) == pictures[i].digit;
  }
  return static_cast<double>(right) / static_cast<double>(pictures.size() - kTrained);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Picture> pictures = load(argc > 1 ? argv[1] : "examples/digits/digits.bin");
  const std::string hook = argc > 2 ? argv[2] : "allreduce";
  const int epochs = argc > 3 ? std::stoi(argv[3]) : 10;
  const std::string optimizer = argc > 4 ? argv[4] : "sgd(lr=0.2)";

  const auto group = hl::init_process_group();
  const auto rank = static_cast<std::size_t>(group->rank());
  const std::size_t share = kBatch / static_cast<std::size_t>(group->size());
  const Network net;
  if (rank == 0) net.randomize();  // the reducer broadcasts rank 0's parameters
  hl::Reducer reducer(net.parameters(), group, hl::overlap(hl::make_hook(hook, group), hl::make_optimizer(optimizer)));
  const Network gradients{reducer.gradient("w1"), reducer.gradient("b1"), reducer.gradient("w2"),
                          reducer.gradient("b2")};

  std::vector<std::size_t> order(kTrained);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(2);
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t first = 0; first < kTrained; first += kBatch) {
      std::vector<const Picture*> batch;
      for (std::size_t i = 0; i < share; ++i) batch.push_back(&pictures[order[first + rank * share + i]]);
      for (const hl::Parameter& p : gradients.parameters()) p.tensor.fill(0);
      backward(net, batch, gradients);
      for (const char* name : {"b2", "w2", "b1", "w1"}) reducer.mark_ready(name);
      reducer.finalize();  // also runs the optimizer, which overlap() attached
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (rank == 0) {
    const hl::StepStats stats = reducer.stats();
    std::printf("%s: accuracy %.1f %%, %llu bytes sent a step, %.2f ms a step\n", stats.hook.c_str(),
                100 * accuracy(net, pictures), static_cast<unsigned long long>(stats.bytes_sent),
                1e3 * seconds / static_cast<double>(stats.step));
  }
}
