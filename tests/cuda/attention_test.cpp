#include <array>

#include "tests/cuda/attention_case.hpp"

namespace prun::test::attention_test {
namespace {

using Attention = CudaTest;

struct Case {
  cuda::AttentionShape shape;
  double amplitude = 1;
  std::int64_t document = 0;  // positions of one, about; 0: they are not kept apart
};

// Of uneven lengths, other ones in each sample.
Value documents_of(const Case& c) {
  if (c.document == 0) return {};
  std::vector<std::int64_t> starts;
  for (std::int64_t b = 0; b < c.shape.batch; ++b)
    for (std::int64_t i = 0, start = 0; i < c.shape.seq; ++i) {
      if (i - start >= c.document + (start + b) % 5) start = i;
      starts.push_back(start);
    }
  return integers(DType::i32, {c.shape.batch, c.shape.seq}, starts);
}

// Lengths around the tiles, odd widths and those of each kernel, groups of queries, peaked weights; some
// drawn.
std::vector<Case> cases() {
  std::vector<Case> all = {{{1, 1, 1, 1, 8, true}},
                           {{2, 7, 2, 1, 5, true}},
                           {{2, 7, 2, 2, 5, false}},
                           {{1, 64, 1, 1, 64, true}},
                           {{2, 65, 1, 2, 17, true}},
                           {{1, 130, 2, 4, 32, true}},
                           {{1, 129, 1, 4, 31, false}},
                           {{1, 257, 2, 1, 16, true}},
                           {{2, 100, 2, 1, 80, true}},
                           {{1, 97, 1, 3, 128, false}},
                           {{1, 70, 1, 2, 256, true}},
                           {{1, 90, 1, 1, 255, false}},
                           {{3, 33, 3, 2, 40, true}},
                           {{1, 90, 2, 1, 16, true}, 8},
                           {{2, 70, 2, 2, 16, true}, 1, 9},
                           {{2, 150, 1, 1, 64, true}, 1, 60},
                           {{1, 100, 1, 2, 130, true}, 1, 30},
                           {{1, 130, 2, 2, 16, true, 1}},
                           {{2, 97, 1, 2, 24, true, 9}},
                           {{1, 200, 1, 1, 64, true, 64}},
                           {{1, 70, 1, 2, 32, true, 500}},
                           {{2, 140, 1, 1, 16, true, 30}, 1, 50},
                           {{1, 130, 2, 2, 16, false, 1}},
                           {{2, 97, 1, 2, 64, false, 9}},
                           {{1, 140, 1, 1, 24, false, 40}}};
  for (Case bounded :
       {Case{{2, 65, 1, 2, 17, true}, 3}, {{1, 97, 1, 1, 64, false}, 2}, {{2, 70, 1, 1, 128, true, 9}, 2}}) {
    bounded.shape.softcap = 1.5;
    all.push_back(bounded);
  }
  for (Case drops : {Case{{2, 70, 2, 2, 5, true}},
                     {{1, 97, 1, 3, 128, false}},
                     {{2, 50, 1, 1, 200, true}, 1, 9},
                     {{2, 100, 1, 2, 24, true, 9}},
                     {{1, 140, 1, 1, 24, false, 40}, 2}}) {
    drops.shape.p = 0.3;
    drops.shape.softcap = drops.amplitude > 1 ? 1.5 : 0;
    all.push_back(drops);
  }
  std::mt19937 generator(5);
  for (int i = 0; i < 4; ++i) {
    const auto draw = [&](unsigned most) { return static_cast<std::int64_t>(1 + generator() % most); };
    all.push_back({{draw(3), draw(150), draw(3), draw(4), i % 2 ? draw(160) : 8 * draw(16), i < 2}});
  }
  const auto takes_long = [](const Case& c) { return c.shape.query_rows() * c.shape.seq > 30'000; };
  if (on_host) std::erase_if(all, takes_long);
  return all;
}

// Calls body(reference, device, case) for all cases, types, layouts and alignments.
template <class Body>
void for_cases(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const Case& c : cases()) {
      const AttentionReference<T> reference = by_cpu<T>(c.shape, c.amplitude, documents_of(c));
      for (bool packed : {false, true}) {
        SCOPED_TRACE(text_of(c.shape) + (packed ? ", packed" : ", apart"));
        AttentionOnDevice<T> device(reference, packed, offset);
        body(reference, device, c);
      }
    }
  });
}

// bf16 results are rounded from what agrees far better.
template <class T>
double bound(const Case& c) {
  return std::is_same_v<T, double> ? 1e-12 : std::is_same_v<T, float> ? 2e-5 * c.amplitude : 8e-3;
}

TEST_F(Attention, ForwardAsOnTheCpu) {
  for_cases([]<class T>(const AttentionReference<T>& want, AttentionOnDevice<T>& got, const Case& c) {
    cuda::attention(got.forward(nullptr), nullptr);
    expect_close(got.y(), want.y.numbers(), bound<T>(c), "y");
    expect_close(got.lse(), want.lse.numbers(), std::is_same_v<T, double> ? 1e-12 : 2e-5 * c.amplitude,
                 "lse");
  });
}

TEST_F(Attention, BackwardAsOnTheCpu) {
  for_cases([]<class T>(const AttentionReference<T>& want, AttentionOnDevice<T>& got, const Case& c) {
    {
      const DeviceWorkspace workspace(cuda::attention_backward_workspace<T>(c.shape));
      cuda::attention_backward(got.backward(workspace.data()), nullptr);
    }
    expect_close(got.dq(), want.dq.numbers(), bound<T>(c), "dq");
    expect_close(got.dk(), want.dk.numbers(), bound<T>(c), "dk");
    expect_close(got.dv(), want.dv.numbers(), bound<T>(c), "dv");
  });
}

// Neither the layout nor a second run changes a bit.
TEST_F(Attention, TheSameBitsEveryTime) {
  const AttentionReference<bf16> reference = by_cpu<bf16>({2, on_host ? 100 : 200, 2, 3, 64, true});
  std::vector<Value> first;
  for (bool packed : {false, true, true}) {
    AttentionOnDevice<bf16> device(reference, packed);
    const DeviceWorkspace workspace(cuda::attention_backward_workspace<bf16>(reference.shape));
    cuda::attention(device.forward(nullptr), nullptr);
    cuda::attention_backward(device.backward(workspace.data()), nullptr);
    const std::vector<Value> results = {device.y(), device.lse(), device.dq(), device.dk(), device.dv()};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i].bytes(), first[i].bytes()) << "result " << i << (packed ? ", packed" : ", apart");
  }
}

// Tiles that no window reaches are not even read: neither of keys nor of queries.
TEST_F(Attention, LeavesOutWhatTwoSidedWindowsDoNotReach) {
  constexpr std::int64_t seq = 200, width = 16, tile = 64;
  const cuda::AttentionShape shape{1, seq, 1, 1, width, false, 9};
  const AttentionReference<float> whole = by_own_kernels<float>(shape);
  const auto poisoned = [&](std::int64_t position) {
    AttentionReference<float> r = whole;
    for (std::int64_t i = 0; i < 3 * width; ++i)
      r.x.set(static_cast<std::size_t>(position * 3 * width + i), NAN);
    for (std::int64_t i = 0; i < width; ++i) r.dy.set(static_cast<std::size_t>(position * width + i), NAN);
    AttentionOnDevice<float> device(r, false);
    const DeviceWorkspace workspace(cuda::attention_backward_workspace<float>(shape));
    cuda::attention(device.forward(nullptr), nullptr);
    cuda::attention_backward(device.backward(workspace.data()), nullptr);
    return std::array{device.y(), device.dq(), device.dk(), device.dv()};
  };
  const std::array all = {whole.y, whole.dq, whole.dk, whole.dv};
  for (const auto& [position, begin, end] : {std::array<std::int64_t, 3>{150, 0, tile}, {10, 3 * tile, seq}})
    for (std::size_t which = 0; which < all.size(); ++which) {
      const Value got = poisoned(position)[which];
      for (std::int64_t i = begin * width; i < end * width; ++i)
        ASSERT_EQ(got[static_cast<std::size_t>(i)], all[which][static_cast<std::size_t>(i)])
            << "result " << which << ", element " << i << " beside position " << position;
    }
}

TEST_F(Attention, NonFiniteInputShowsInTheResult) {
  for (double poison : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (std::size_t slot : {0, 1, 2}) {
      SCOPED_TRACE("slot " + std::to_string(slot) + " is " + std::to_string(poison));
      AttentionReference<float> reference({1, 80, 1, 1, 16, true});
      for (std::size_t d = 0; d < 16; ++d) reference.x.set((40 * 3 + slot) * 16 + d, poison);
      AttentionOnDevice<float> device(reference, true);
      cuda::attention(device.forward(nullptr), nullptr);
      EXPECT_FALSE(std::isfinite(device.y()[40 * 16])) << "position 40 sees itself";
    }
}

TEST_F(Attention, RefusesHeadsThatAreTooWide) {
  cuda::AttentionForward<float> forward = {};
  forward.shape = {1, 1, 1, 1, 257};
  EXPECT_THROW(cuda::attention(forward, nullptr), Error);
  cuda::AttentionBackward<float> backward = {};
  backward.shape = {1, 1, 1, 1, 257};
  EXPECT_THROW(cuda::attention_backward(backward, nullptr), Error);
}

}  // namespace
}  // namespace prun::test::attention_test
