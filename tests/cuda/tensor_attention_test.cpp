#include "attention/cuda_tensor.hpp"

#include "tests/cuda/attention_case.hpp"

namespace prun::test::tensor_attention_test {
namespace {

using cuda::AttentionForm, cuda::AttentionShape;

using TensorAttention = CudaTest;

struct Case {
  AttentionShape shape;
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

// Lengths around the tiles, groups of queries, peaked weights, short and long documents, windows. Of one key
// alone gradients of queries and keys are nothing but rounding.
std::vector<Case> cases() {
  std::vector<Case> all = {{{1, 1, 1, 1, 64, true}},           {{2, 9, 2, 1, 64, true}},
                           {{1, 64, 2, 1, 64, true}},          {{1, 65, 1, 2, 64, false}},
                           {{2, 130, 1, 1, 64, true}},         {{1, 129, 1, 3, 64, true}, 6},
                           {{1, 200, 1, 1, 64, false}},        {{1, 100, 1, 2, 128, true}},
                           {{1, 70, 2, 1, 128, false}, 3},     {{2, 150, 1, 1, 64, true}, 1, 20},
                           {{1, 300, 1, 2, 64, true}, 1, 130}, {{1, 140, 1, 1, 128, true}, 1, 50},
                           {{1, 200, 1, 1, 64, true, 3}},      {{2, 150, 1, 2, 64, true, 33}},
                           {{1, 300, 1, 1, 64, true, 100}},    {{1, 140, 1, 2, 128, true, 50}},
                           {{1, 90, 1, 1, 64, true, 400}},     {{2, 150, 1, 1, 64, true, 40}, 1, 60}};
  if (!on_host)
    for (const AttentionShape& shape : {AttentionShape{2, 512, 8, 1, 64},
                                        {3, 1024, 4, 1, 64},
                                        {1, 1000, 2, 7, 128},
                                        {9, 777, 5, 1, 64, false},
                                        {2, 2048, 4, 1, 64, true, 256},
                                        {1, 3000, 2, 4, 128, true, 1000}})
      all.push_back({shape});
  return all;
}

// Calls body(reference, device, case, form) for all cases, layouts and forms.
template <class T, class Body>
void for_cases(Body body) {
  SCOPED_TRACE(name_of(dtype_of<T>()));
  for (const Case& c : cases()) {
    const AttentionReference<T> reference = by_cpu<T>(c.shape, c.amplitude, documents_of(c));
    for (const bool packed : {false, true})
      for (const AttentionForm form : {AttentionForm::few, AttentionForm::many}) {
        SCOPED_TRACE(text_of(c.shape) + (packed ? ", packed" : ", apart") +
                     (c.document ? ", documents" : "") + (form == AttentionForm::few ? ", few" : ", many"));
        AttentionOnDevice<T> device(reference, packed);
        body(reference, device, c, form);
      }
  }
}

// Weights are rounded to bf16, which moves an output by less than a hundredth of its row.
template <class T>
void expect_forward_as_on_the_cpu(double bound) {
  for_cases<T>([=](const auto& want, auto& got, const Case& c, AttentionForm form) {
    cuda::tensor_attention(got.forward(nullptr), form, nullptr);
    expect_rows_close(got.y(), want.y, c.shape.head_dim, "y", bound);
    expect_close(got.lse(), want.lse.numbers(), 2e-5 * c.amplitude, "lse");
  });
}

template <class T>
void expect_backward_as_on_the_cpu(double bound) {
  for_cases<T>([=](const auto& want, auto& got, const Case&, AttentionForm form) {
    cuda::tensor_attention_backward(got.backward(nullptr), form, nullptr);
    expect_gradients_close(got, want, bound);
  });
}

TEST_F(TensorAttention, ForwardAsOnTheCpu) { expect_forward_as_on_the_cpu<bf16>(0.01); }
TEST_F(TensorAttention, BackwardAsOnTheCpu) { expect_backward_as_on_the_cpu<bf16>(0.02); }

// It has three bits more than bf16.
TEST_F(TensorAttention, ForwardInFp16AsOnTheCpu) { expect_forward_as_on_the_cpu<f16>(0.002); }
TEST_F(TensorAttention, BackwardInFp16AsOnTheCpu) { expect_backward_as_on_the_cpu<f16>(0.005); }

// Neither the layout nor a second run changes a bit.
TEST_F(TensorAttention, TheSameBitsEveryTime) {
  const AttentionReference<bf16> reference = by_cpu<bf16>({2, on_host ? 100 : 500, 2, 3, 64, true});
  for (const AttentionForm form : {AttentionForm::few, AttentionForm::many}) {
    std::vector<Value> first;
    for (bool packed : {false, true, true}) {
      AttentionOnDevice<bf16> device(reference, packed);
      cuda::tensor_attention(device.forward(nullptr), form, nullptr);
      cuda::tensor_attention_backward(device.backward(nullptr), form, nullptr);
      const std::vector<Value> results = {device.y(), device.lse(), device.dq(), device.dk(), device.dv()};
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i)
        EXPECT_EQ(results[i].bytes(), first[i].bytes())
            << "result " << i << (packed ? ", packed" : ", apart");
    }
  }
}

TEST_F(TensorAttention, NonFiniteInputShowsInTheResult) {
  for (double poison : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (std::size_t slot : {0, 1, 2})
      for (const AttentionForm form : {AttentionForm::few, AttentionForm::many}) {
        SCOPED_TRACE("slot " + std::to_string(slot) + " is " + std::to_string(poison));
        AttentionReference<bf16> reference({1, 80, 1, 1, 64, true});
        for (std::size_t d = 0; d < 64; ++d) reference.x.set((40 * 3 + slot) * 64 + d, poison);
        AttentionOnDevice<bf16> device(reference, true);
        cuda::tensor_attention(device.forward(nullptr), form, nullptr);
        EXPECT_FALSE(std::isfinite(device.y()[40 * 64])) << "position 40 sees itself";
      }
}

// What lies beyond the sequence is not read, and a mask hides even what would overflow.
TEST_F(TensorAttention, KeysThatAreHiddenDoNoHarm) {
  AttentionReference<bf16> reference = by_cpu<bf16>({1, 40, 1, 1, 64, true});
  for (std::size_t d = 0; d < 64; ++d) reference.x.set((39 * 3 + 1) * 64 + d, 1e18);  // the last key
  for (const AttentionForm form : {AttentionForm::few, AttentionForm::many}) {
    AttentionOnDevice<bf16> device(reference, true);
    cuda::tensor_attention(device.forward(nullptr), form, nullptr);
    cuda::tensor_attention_backward(device.backward(nullptr), form, nullptr);
    const Value y = device.y(), dq = device.dq();
    for (std::size_t i = 0; i < 39 * 64; ++i) {
      ASSERT_TRUE(std::isfinite(y[i])) << "y, " << i;
      ASSERT_TRUE(std::isfinite(dq[i])) << "dq, " << i;
    }
  }
}

// Says whether calls of a shape go to tensor cores, forward and backward, with operands that are aligned.
template <class T>
bool is_taken(const AttentionShape& s) {
  const cuda::HeadStrides queries = cuda::head_strides(s, s.queries),
                          keys = cuda::head_strides(cuda::shape_of_keys(s), 1);
  cuda::AttentionForward<T> forward{};
  forward.shape = s;
  forward.q.strides = forward.y.strides = queries;
  forward.k.strides = forward.v.strides = keys;
  cuda::AttentionBackward<T> backward{};
  backward.shape = s;
  for (cuda::HeadStrides* strides :
       {&backward.dy.strides, &backward.q.strides, &backward.y.strides, &backward.dq.strides})
    *strides = queries;
  for (cuda::HeadStrides* strides :
       {&backward.k.strides, &backward.v.strides, &backward.dk.strides, &backward.dv.strides})
    *strides = keys;
  const bool taken = cuda::tensor_form(forward).has_value();
  EXPECT_EQ(cuda::tensor_form(backward).has_value(), taken) << text_of(s);
  return taken;
}

// Attention of T5, of its encoder, of its decoder, and of the decoder to the encoder.
TEST_F(TensorAttention, TakesEncodersAndDecoders) {
  for (const std::int64_t head_dim : {64, 128}) {
    AttentionShape across{32, 114, 12, 1, head_dim, false};
    across.keys = 512;
    for (const AttentionShape& shape :
         {AttentionShape{32, 512, 12, 1, head_dim, false}, {32, 114, 12, 1, head_dim, true}, across}) {
      SCOPED_TRACE(text_of(shape) + ", keys " + std::to_string(shape.keys));
      EXPECT_TRUE(is_taken<bf16>(shape));
      EXPECT_TRUE(is_taken<f16>(shape));
      EXPECT_FALSE(is_taken<float>(shape));
      EXPECT_FALSE(is_taken<double>(shape));
    }
  }
}

TEST_F(TensorAttention, LeavesToTheGeneralKernelsWhatItCannotTake) {
  const AttentionShape plain{2, 96, 2, 1, 64, true};
  const auto with = [&](auto change) {
    AttentionShape shape = plain;
    change(shape);
    return is_taken<bf16>(shape);
  };
  EXPECT_TRUE(with([](AttentionShape&) {}));
  for (const std::int64_t width : {8, 32, 80, 96, 192, 256})
    EXPECT_FALSE(with([&](AttentionShape& s) { s.head_dim = width; })) << width;
  EXPECT_FALSE(with([](AttentionShape& s) { s.softcap = 30; }));
  EXPECT_FALSE(with([](AttentionShape& s) { s.p = 0.1; }));
  EXPECT_TRUE(with([](AttentionShape& s) { s.window = 9; }));
  EXPECT_FALSE(with([](AttentionShape& s) { s.window = 9, s.causal = false; }));
  EXPECT_FALSE(with([](AttentionShape& s) { s.keys = 192; })) << "a part of the queries under a mask";
  EXPECT_TRUE(with([](AttentionShape& s) { s.keys = 192, s.causal = false; }));
  EXPECT_FALSE(with([](AttentionShape& s) { s.seq = 1 << 21, s.keys = 9, s.causal = false; })) << "grids end";
  EXPECT_FALSE(with([](AttentionShape& s) { s.keys = 1 << 21, s.causal = false; })) << "grids end";
}

TEST_F(TensorAttention, RefusesWhatItCannotTake) {
  const AttentionReference<bf16> narrow({1, 16, 1, 1, 32}), wide({1, 16, 1, 1, 64});
  const AttentionOnDevice<bf16> other(narrow, false), shifted(wide, false, 1), fits(wide, true);
  EXPECT_FALSE(cuda::tensor_attention_takes(other.forward(nullptr)));
  EXPECT_FALSE(cuda::tensor_attention_takes(shifted.forward(nullptr)));
  EXPECT_FALSE(cuda::tensor_attention_takes(shifted.backward(nullptr)));
  EXPECT_TRUE(cuda::tensor_attention_takes(fits.forward(nullptr)));
  EXPECT_TRUE(cuda::tensor_attention_takes(fits.backward(nullptr)));
  EXPECT_THROW(cuda::tensor_attention(other.forward(nullptr), AttentionForm::few, nullptr), Error);
}

}  // namespace
}  // namespace prun::test::tensor_attention_test
