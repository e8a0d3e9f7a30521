// Draws the words by which an update rounds stochastically: they depend on the seed, the step, and an
// element's tensor and number there, and on nothing else.
#pragma once

#include <algorithm>

#include "cpu/lanes.hpp"
#include "cpu/philox.hpp"
#include "optimizer/cpu_operands.hpp"
#include "philox_rounds.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

// Draws the words of neighbouring elements: at most block_lanes of them.
class Draws {
 public:
  Draws(double seed, std::uint64_t stream) : seed_(static_cast<std::uint64_t>(seed)), stream_(stream) {}

  void draw(std::uint64_t first, std::int64_t n, std::uint32_t* words) const {
    constexpr std::int64_t half = 4 * philox_lanes;  // counts words of one state
    alignas(64) std::uint32_t drawn[block_lanes + 2 * half];
    const auto skipped = static_cast<std::int64_t>(first % 4);
    std::uint64_t block = first / 4;
    for (std::int64_t c = 0; c < skipped + n; c += 2 * half, block += 2 * philox_lanes) {
      PhiloxState x = counters(block), y = counters(block + philox_lanes);
      philox<rounds_of_steps>(x, y,
                              {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
      x.store(drawn + c);
      y.store(drawn + c + half);
    }
    std::copy_n(drawn + skipped, n, words);
  }

 private:
  PhiloxState counters(std::uint64_t first) const {
    Words block = Words{} + first;
    for (int l = 0; l < philox_lanes; ++l) block[l] += static_cast<std::uint64_t>(l);
    return {block, block >> 32, Words{} + stream_, Words{} + (stream_ >> 32)};
  }

  std::uint64_t seed_, stream_;
};

// Draws the words of elements [i, i + n) of a tensor.
inline void draw_elements(const Draws& draws, const TensorElements& elements, std::int64_t i, std::int64_t n,
                          std::uint32_t* words) {
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t left = elements.run - (elements.skipped + i + done) % elements.run;
    const std::int64_t together = std::min(n - done, left);
    draws.draw(static_cast<std::uint64_t>(elements.number(i + done)), together, words + done);
    done += together;
  }
}

// Is the key of an update that rounds by chance.
struct ChanceKey {
  double seed = 0, step = 0;

  ChanceKey(const Tensor& seed_operand, const Tensor& step_operand)
      : seed(scalar(seed_operand)), step(scalar(step_operand)) {}
};

}  // namespace prun::cpu::PRUN_ISA
