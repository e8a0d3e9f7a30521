// The gated delta rule and what stands around it, as the CPU's kernels.
#include "delta_rule/cuda.hpp"

#include "delta_heads/cuda.hpp"
#include "delta_rule/cuda_tensor.hpp"
#include "output_gate/cuda.hpp"
#include "short_conv/cuda.hpp"
#include "tests/cuda/device_value.hpp"

namespace prun::test::delta_rule_test {
namespace {

using DeltaRuleOnDevice = CudaTest;

struct Case {
  std::int64_t batch, seq, heads, key, values, value, chunk;
  std::vector<std::int64_t> documents = {};

  std::vector<std::int64_t> keys() const { return {batch, seq, heads, key}; }
  std::vector<std::int64_t> all_values() const { return {batch, seq, heads * values, value}; }
  std::vector<std::int64_t> gates() const { return {batch, seq, heads * values}; }
  std::vector<std::int64_t> state() const { return {batch, heads, DeltaState{key, values, value}.numbers()}; }
  cuda::DeltaRuleSizes sizes() const {
    return {batch, seq, heads, key, values, value, std::min(chunk, seq), SequenceRuns::whole(seq)};
  }
};

const std::vector<Case> cases = {
    {2, 5, 2, 4, 2, 3, 64},
    {1, 11, 1, 6, 3, 9, 4},
    {2, 9, 1, 4, 1, 4, 4, {0, 0, 0, 3, 3, 5, 5, 5, 8, 0, 1, 1, 1, 1, 5, 5, 5, 5}}};

// Values of any type, keys of length 1 in it, decays and shares.
struct Drawn {
  Value q, k, v, g, beta, dy, documents;

  Drawn(const Case& c, DType type)
      : q(random_value(type, c.keys(), 1)),
        k(random_value(type, c.keys(), 2)),
        v(random_value(type, c.all_values(), 3)),
        g(random_value(OpShape::statistics(type), c.gates(), 4)),
        beta(random_value(OpShape::statistics(type), c.gates(), 5)),
        dy(random_value(type, c.all_values(), 6)) {
    for (Value* x : {&q, &k})
      for (std::size_t i = 0; i < x->size(); ++i) x->set(i, (*x)[i] / std::sqrt(static_cast<double>(c.key)));
    for (std::size_t i = 0; i < g.size(); ++i) {
      g.set(i, -std::abs(g[i]));
      beta.set(i, 0.5 + 0.5 * beta[i]);
    }
    if (!c.documents.empty()) documents = integers(DType::i32, {c.batch, c.seq}, c.documents);
  }
};

void expect_as(OnDevice& got, const Value& want, const char* what) {
  expect_close(got.value(), want.numbers(), 4 * tolerance(want.dtype()), what);
}

template <class Body>
void for_cases(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const Case& c : cases) body.template operator()<T>(c, Drawn(c, dtype_of<T>()), offset);
  });
}

// Compares with the CPU; `as` says whether a result is as it should be.
template <class T, class As>
void forward_and_backward(const Case& c, const Drawn& of, std::int64_t offset, const As& as) {
  using C = cuda::Compute<T>;
  const DType type = dtype_of<T>(), sums = dtype_of<C>();
  const std::vector<Value> want =
      cpu("delta_rule", {of.q, of.k, of.v, of.g, of.beta, zeros(of.v), Value(sums, c.state()), of.documents},
          {{.i = c.chunk}});
  const OnDevice q(of.q, offset), k(of.k, offset), v(of.v, offset), g(of.g, offset), beta(of.beta, offset),
      dy(of.dy, offset);
  const OnDevice documents(of.documents.shape().present ? of.documents : Value(DType::i32, {1}));
  cuda::DeltaRuleSizes sizes = c.sizes();
  if (of.documents.shape().present) sizes.documents = documents.as<const std::int32_t>();
  {
    OnDevice y(type, c.all_values(), offset), state(sums, c.state(), offset);
    const DeviceWorkspace workspace(cuda::delta_rule_workspace<T>(sizes));
    cuda::delta_rule<T>({sizes, q.as<const T>(), k.as<const T>(), v.as<const T>(), g.as<const C>(),
                         beta.as<const C>(), y.as<T>(), state.as<C>(), workspace.data()},
                        nullptr);
    as(y, want[5], "y");
    as(state, want[6], "state");
  }
  const std::vector<Value> back = cpu("delta_rule_grad",
                                      {of.dy, of.q, of.k, of.v, of.g, of.beta, of.documents, zeros(of.q),
                                       zeros(of.k), zeros(of.v), zeros(of.g), zeros(of.beta)},
                                      {{.i = c.chunk}});
  OnDevice dq(type, c.keys(), offset), dk(type, c.keys(), offset), dv(type, c.all_values(), offset),
      dg(sums, c.gates(), offset), dbeta(sums, c.gates(), offset);
  const DeviceWorkspace workspace(cuda::delta_rule_backward_workspace<T>(sizes));
  cuda::delta_rule_backward<T>(
      {sizes, dy.as<const T>(), q.as<const T>(), k.as<const T>(), v.as<const T>(), g.as<const C>(),
       beta.as<const C>(), dq.as<T>(), dk.as<T>(), dv.as<T>(), dg.as<C>(), dbeta.as<C>(), workspace.data()},
      nullptr);
  as(dq, back[7], "dq");
  as(dk, back[8], "dk");
  as(dv, back[9], "dv");
  as(dg, back[10], "dg");
  as(dbeta, back[11], "dbeta");
}

TEST_F(DeltaRuleOnDevice, ForwardAndBackwardAsTheCpu) {
  for_cases([]<class T>(const Case& c, const Drawn& of, std::int64_t offset) {
    forward_and_backward<T>(c, of, offset, expect_as);
  });
}

// Compares all numbers together, by their root mean square.
void expect_near(OnDevice& got, const Value& want, const char* what) {
  const Value is = got.value();
  double off = 0, all = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    off += (is[i] - want[i]) * (is[i] - want[i]);
    all += want[i] * want[i];
  }
  // Sums that are left in float, those of gates among them, have factors that were rounded several times.
  EXPECT_LE(std::sqrt(off / all), want.dtype() == DType::f32 ? 2e-2 : 1e-2) << what;
}

// Chunks of which the last is short, several values of a key, documents that end in chunks and between them,
// and keys that come again while nearly all of a value is learnt.
TEST_F(DeltaRuleOnDevice, OnTensorCoresAsTheCpu) {
  Case plain{1, 150, on_host ? 1 : 3, 128, 2, 128, 64}, apart = plain, again = plain;
  plain.batch = on_host ? 1 : 2;
  for (std::int32_t i = 0; i < 150; ++i)
    apart.documents.push_back(i < 20 ? 0 : i < 64 ? 20 : i < 100 ? 64 : 100);
  for (const Case* one : {&plain, &apart, &again}) {
    const Case& c = *one;
    Drawn of(c, DType::bf16);
    for (Value* x : {&of.q, &of.k})
      for (std::size_t i = 0; i < x->size(); ++i) x->set(i, (*x)[i] * std::sqrt(3.0));
    if (one == &again) {
      const std::size_t own = static_cast<std::size_t>(5 * c.heads * c.key);
      for (std::size_t i = own; i < of.k.size(); ++i) of.k.set(i, of.k[i % own]);
      for (std::size_t i = 0; i < of.beta.size(); ++i)
        of.beta.set(i, 1 - 0.05 * of.beta[i]), of.g.set(i, 0.01 * of.g[i]);
    }
    ASSERT_TRUE(cuda::tensor_delta_takes(c.sizes()));
    forward_and_backward<bf16>(c, of, 0, expect_near);
  }
}

// The second of two ranks whose sequences lie in zigzag, and in order: it has two runs, or one.
struct Part {
  Case c;
  std::int64_t rows, chunks;

  std::int64_t all() const { return 2 * c.seq / rows; }
  std::vector<Attr> attrs() const { return {{.i = c.chunk}, {.i = rows}, {.i = chunks}}; }
  std::vector<std::int64_t> states() const { return {c.batch, all(), c.heads * c.values, c.key * c.value}; }
  SequenceRuns runs() const { return {rows, 0, c.seq, {chunks > 0 ? rows : 0, chunks}}; }
  cuda::DeltaRuleSizes sizes(const OnDevice* documents) const {
    cuda::DeltaRuleSizes sizes = c.sizes();
    sizes.chunk = std::min(c.chunk, rows);
    sizes.runs = runs();
    sizes.all_runs = all();
    if (documents) sizes.documents = documents->as<const std::int32_t>();
    return sizes;
  }
};

const std::vector<Part> parts = {
    {{2, 12, 2, 4, 2, 3, 4}, 6, 4},
    {{1, 12, 1, 3, 1, 35, 64}, 12, 0},
    {{2, 12, 1, 4, 2, 4, 4, {0, 0, 0, 9, 9, 9, 9, 9, 9, 15, 15, 15, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6}},
     6,
     4}};

template <class Body>
void for_parts(Body body) {
  for_types([&]<class T>(std::int64_t offset) {
    for (const Part& part : parts) body.template operator()<T>(part, Drawn(part.c, dtype_of<T>()), offset);
  });
}

TEST_F(DeltaRuleOnDevice, RunsAsTheCpu) {
  for_parts([]<class T>(const Part& part, const Drawn& of, std::int64_t offset) {
    using C = cuda::Compute<T>;
    const Case& c = part.c;
    const DType type = dtype_of<T>(), sums = dtype_of<C>();
    const Value from = random_value(sums, part.states(), 7), behind = random_value(sums, part.states(), 8);
    const OnDevice q(of.q, offset), k(of.k, offset), v(of.v, offset), g(of.g, offset), beta(of.beta, offset),
        dy(of.dy, offset), starts(from, offset), ends(behind, offset);
    const OnDevice documents(of.documents.shape().present ? of.documents : Value(DType::i32, {1}));
    const cuda::DeltaRuleSizes sizes = part.sizes(of.documents.shape().present ? &documents : nullptr);
    OnDevice y(type, c.all_values(), offset);
    const DeviceWorkspace workspace(cuda::delta_rule_workspace<T>(sizes));
    cuda::delta_rule<T>({sizes, q.as<const T>(), k.as<const T>(), v.as<const T>(), g.as<const C>(),
                         beta.as<const C>(), y.as<T>(), nullptr, workspace.data(), starts.as<const C>()},
                        nullptr);
    expect_as(y,
              cpu("delta_rule_runs", {of.q, of.k, of.v, of.g, of.beta, from, of.documents, zeros(of.v)},
                  part.attrs(), {{0, 1, c.seq}})[7],
              "y");
    const std::vector<Value> back = cpu("delta_rule_runs_grad",
                                        {of.dy, of.q, of.k, of.v, of.g, of.beta, from, behind, of.documents,
                                         zeros(of.q), zeros(of.k), zeros(of.v), zeros(of.g), zeros(of.beta)},
                                        part.attrs(), {{1, 1, c.seq}});
    OnDevice dq(type, c.keys(), offset), dk(type, c.keys(), offset), dv(type, c.all_values(), offset),
        dg(sums, c.gates(), offset), dbeta(sums, c.gates(), offset);
    const DeviceWorkspace room(cuda::delta_rule_backward_workspace<T>(sizes));
    cuda::delta_rule_backward<T>(
        {sizes, dy.as<const T>(), q.as<const T>(), k.as<const T>(), v.as<const T>(), g.as<const C>(),
         beta.as<const C>(), dq.as<T>(), dk.as<T>(), dv.as<T>(), dg.as<C>(), dbeta.as<C>(), room.data(),
         starts.as<const C>(), ends.as<const C>()},
        nullptr);
    expect_as(dq, back[9], "dq");
    expect_as(dk, back[10], "dk");
    expect_as(dv, back[11], "dv");
    expect_as(dg, back[12], "dg");
    expect_as(dbeta, back[13], "dbeta");
  });
}

TEST_F(DeltaRuleOnDevice, WhatRunsMakeOfStatesAsTheCpu) {
  for_parts([]<class T>(const Part& part, const Drawn& of, std::int64_t offset) {
    using C = cuda::Compute<T>;
    const Case& c = part.c;
    const DType sums = dtype_of<C>();
    const OnDevice q(of.q, offset), k(of.k, offset), v(of.v, offset), g(of.g, offset), beta(of.beta, offset),
        dy(of.dy, offset);
    const OnDevice documents(of.documents.shape().present ? of.documents : Value(DType::i32, {1}));
    const cuda::DeltaRuleSizes sizes = part.sizes(of.documents.shape().present ? &documents : nullptr);
    for (const bool back : {false, true}) {
      const std::int64_t width = c.key * (c.key + (back ? 2 : 1) * c.value);
      OnDevice maps(sums, {c.batch, c.seq / part.rows, c.heads * c.values, width}, offset);
      const DeviceWorkspace workspace(cuda::delta_maps_workspace<T>(sizes));
      cuda::delta_maps<T>({sizes, k.as<const T>(), v.as<const T>(), g.as<const C>(), beta.as<const C>(),
                           back ? q.as<const T>() : nullptr, back ? dy.as<const T>() : nullptr, maps.as<C>(),
                           width, workspace.data()},
                          nullptr);
      expect_as(maps,
                cpu("delta_maps",
                    {of.k, of.v, of.g, of.beta, back ? of.q : Value(), back ? of.dy : Value(), of.documents,
                     Value(sums, maps.value().dims())},
                    part.attrs(), {{0, 1, c.seq}})[7],
                "maps");
      const Value all = random_value(sums, {c.batch, part.all(), c.heads * c.values, width}, 9,
                                     1.0 / static_cast<double>(c.key));
      const OnDevice of_all(all, offset);
      OnDevice starts(sums, part.states(), offset);
      cuda::delta_starts<C>({c.batch, part.all(), c.heads * c.values, c.key, c.value, width, back},
                            of_all.as<const C>(), starts.as<C>(), nullptr);
      expect_as(starts,
                cpu("delta_starts", {all, Value(sums, part.states())},
                    {{.i = c.key}, {.i = c.value}, {.i = back}})[1],
                "starts");
    }
  });
}

TEST_F(DeltaRuleOnDevice, ConvolutionOfRunsAsTheCpu) {
  for_sums([&]<class T, class S>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    const std::vector<std::int64_t> dims = {2, 12, 2, 7}, weights = {2, 7, 1, 4};
    for (const Part& part : parts) {
      const std::int64_t rows = part.rows;
      const std::vector<std::int64_t> with_ahead = {2, 12 / rows * (rows + 3), 2, 7};
      const Value x = random_value(type, with_ahead, 1), weight = random_value(type, weights, 2),
                  dy = random_value(type, dims, 3), few = random_value(dtype_of<S>(), weights, 4),
                  documents =
                      part.c.documents.empty() ? Value() : integers(DType::i32, {2, 12}, part.c.documents);
      const std::vector<Attr> attrs = {{.i = rows}, {.i = part.chunks}};
      const std::vector<Start> here = {{0, 1, 12}};
      const OnDevice in(x, offset), w(weight, offset), d(dy, offset),
          starts(documents.shape().present ? documents : Value(DType::i32, {1}));
      Tensor own = Value(dy).tensor(), of_documents{};
      own.start[1] = 12;
      if (documents.shape().present) of_documents.data = starts.as<void>();
      const cuda::ShortConvSizes sizes = cuda::ShortConvSizes::of_runs(
          Value(x).tensor(), Value(weight).tensor(), &of_documents, own, rows, part.chunks);
      OnDevice y(type, dims, offset), dx(type, with_ahead, offset), sum(few, offset);
      cuda::short_conv<T>(sizes, in.as<const T>(), w.as<const T>(), y.as<T>(), nullptr, 0, nullptr);
      expect_as(y, cpu("short_conv_runs", {x, weight, zeros(dy), documents}, attrs, {{2, 1, 12}})[2], "y");
      cuda::short_conv_input_grad(sizes, d.as<const T>(), in.as<const T>(), w.as<const T>(), dx.as<T>(),
                                  nullptr);
      expect_as(dx, cpu("short_conv_runs_input_grad", {dy, x, weight, documents, zeros(x)}, attrs, here)[4],
                "dx");
      cuda::short_conv_weight_grad(sizes, d.as<const T>(), in.as<const T>(), w.as<const T>(),
                                   cuda::Sum<S>(sum.as<S>(), false), nullptr);
      expect_as(sum,
                cpu_sums("short_conv_runs_weight_grad", {dy, x, weight, documents, few}, {4}, attrs, here)[4],
                "dweight");
    }
  });
}

TEST_F(DeltaRuleOnDevice, SomePositionsAtATimeAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    using C = cuda::Compute<T>;
    const Case c{2, 8, 2, 5, 2, 3, 64};
    const DType type = dtype_of<T>(), sums = dtype_of<C>();
    Value kept(sums, c.state());
    for (const double at : {0.0, 8.0, 11.0, 30.0}) {  // the last one is out of reach
      Case now = c;
      now.seq = at == 11 ? 3 : 8;
      const Drawn of(now, type);
      const std::vector<Value> want =
          cpu("delta_rule_at",
              {of.q, of.k, of.v, of.g, of.beta, number(at), kept, zeros(of.v), Value(sums, c.state())},
              {{.i = 64}});
      const OnDevice q(of.q, offset), k(of.k, offset), v(of.v, offset), g(of.g, offset),
          beta(of.beta, offset), position(number(at));
      OnDevice keeps(kept, offset), y(type, now.all_values(), offset), state(sums, c.state(), offset);
      cuda::delta_rule_at<T>(
          {now.sizes(), q.as<const T>(), k.as<const T>(), v.as<const T>(), g.as<const C>(),
           beta.as<const C>(), position.as<const double>(), keeps.as<C>(), y.as<T>(), state.as<C>()},
          nullptr);
      if (at == 30) {
        for (const double number : y.value().numbers()) EXPECT_TRUE(std::isnan(number));
        continue;
      }
      expect_as(y, want[7], "y");
      expect_as(state, want[8], "state");
      expect_as(keeps, want[6], "kept_state");
      kept = want[6];
    }
  });
}

TEST_F(DeltaRuleOnDevice, ConvolutionAsTheCpu) {
  for_sums([&]<class T, class S>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    // Longer than what a thread walks over.
    const std::int64_t seq = 70;
    const std::vector<std::int64_t> dims = {2, seq, 2, 7}, weights = {4, 7, 1, 4}, tails = {2, 11, 2, 7};
    std::vector<std::int64_t> starts_at;
    for (std::int64_t i = 0; i < 2 * seq; ++i)
      starts_at.push_back(i < seq ? i - i % 9 : i - seq < 40 ? 0 : 40);
    const Value x = random_value(type, dims, 1), weight = random_value(type, weights, 2),
                dy = random_value(type, dims, 3), few = random_value(dtype_of<S>(), weights, 4),
                documents = integers(DType::i32, {2, seq}, starts_at);
    for (const bool apart : {false, true}) {
      const Value given = apart ? documents : Value();
      const std::vector<Start> here = {{0, 2, 1}}, back = {{0, 2, 1}, {1, 2, 1}};
      const std::vector<Value> want =
          cpu("short_conv", {x, weight, zeros(x), Value(type, tails), given}, {}, here);
      const OnDevice in(x, offset), w(weight, offset), d(dy, offset), starts(documents);
      Tensor of_x = Value(x).tensor(), of_weight = Value(weight).tensor(), of_documents{};
      of_x.start[2] = 1;  // of four heads those from the second on
      if (apart) of_documents.data = starts.as<void>();
      const cuda::ShortConvSizes sizes = cuda::ShortConvSizes::of(of_x, of_weight, &of_documents);
      OnDevice y(type, dims, offset), tail(type, tails, offset), dx(type, dims, offset);
      cuda::short_conv(sizes, in.as<const T>(), w.as<const T>(), y.as<T>(), tail.as<T>(), 11, nullptr);
      expect_as(y, want[2], "y");
      EXPECT_EQ(tail.value().bytes(), want[3].bytes());
      cuda::short_conv_input_grad(sizes, d.as<const T>(), in.as<const T>(), w.as<const T>(), dx.as<T>(),
                                  nullptr);
      expect_as(dx, cpu("short_conv_input_grad", {dy, x, weight, given, zeros(x)}, {}, back)[4], "dx");
      for (const bool begins : {false, true}) {
        const Value before = begins ? poison(few) : few;
        OnDevice sum(before, offset);
        cuda::short_conv_weight_grad(sizes, d.as<const T>(), in.as<const T>(), w.as<const T>(),
                                     cuda::Sum<S>(sum.as<S>(), begins), nullptr);
        const Value added = cpu_sums("short_conv_weight_grad",
                                     {dy, x, weight, given, begins ? zeros(few) : few}, {4}, {}, back)[4];
        expect_as(sum, added, "dweight");
      }
    }
  });
}

TEST_F(DeltaRuleOnDevice, ConvolutionOfSomePositionsAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    const std::vector<std::int64_t> dims = {2, 8, 2, 7}, tails = {2, 11, 2, 7};
    const Value weight = random_value(type, {2, 7, 1, 4}, 2);
    Value kept(type, tails);
    for (const double at : {0.0, 8.0, 11.0}) {
      const Value x = random_value(type, dims, static_cast<unsigned>(at) + 3);
      const std::vector<Value> want =
          cpu("short_conv_at", {x, weight, number(at), kept, zeros(x), zeros(kept)});
      const OnDevice in(x, offset), w(weight, offset), position(number(at));
      OnDevice keeps(kept, offset), y(type, dims, offset), tail(type, tails, offset);
      cuda::short_conv_at(cuda::ShortConvSizes::of(Value(x).tensor(), Value(weight).tensor(), nullptr),
                          in.as<const T>(), w.as<const T>(), position.as<const double>(), keeps.as<T>(),
                          y.as<T>(), tail.as<T>(), 11, nullptr);
      expect_as(y, want[4], "y");
      EXPECT_EQ(keeps.value().bytes(), want[3].bytes());
      EXPECT_EQ(tail.value().bytes(), want[5].bytes());
      kept = want[3];
    }
  });
}

TEST_F(DeltaRuleOnDevice, HeadsAndGatesAsTheCpu) {
  for_sums([&]<class T, class S>(std::int64_t offset) {
    using C = cuda::Compute<T>;
    const DType type = dtype_of<T>(), sums = dtype_of<C>();
    const std::vector<std::int64_t> keys = {2, 3, 2, 5}, values = {2, 3, 4, 3}, gates = {2, 3, 4};
    const Value x = random_value(type, {2, 3, 2, 16}, 1), dq = random_value(type, keys, 2),
                dk = random_value(type, keys, 3), dv = random_value(type, values, 4);
    const std::vector<Attr> attrs = {{.i = 5}, {.i = 2}, {.f = 1e-6}};
    const std::vector<Value> want = cpu("delta_heads", {x, zeros(dq), zeros(dk), zeros(dv)}, attrs);
    const OnDevice in(x, offset), of_q(dq, offset), of_k(dk, offset), of_v(dv, offset);
    OnDevice q(type, keys, offset), k(type, keys, offset), v(type, values, offset),
        dx(type, x.dims(), offset);
    cuda::delta_heads(in.as<const T>(), q.as<T>(), k.as<T>(), v.as<T>(), 12, 5, 6, 1e-6, nullptr);
    expect_as(q, want[1], "q");
    expect_as(k, want[2], "k");
    EXPECT_EQ(v.value().bytes(), want[3].bytes());
    cuda::delta_heads_grad(of_q.as<const T>(), of_k.as<const T>(), of_v.as<const T>(), in.as<const T>(),
                           dx.as<T>(), 12, 5, 6, 1e-6, nullptr);
    expect_as(dx, cpu("delta_heads_grad", {dq, dk, dv, x, zeros(x)}, attrs)[4], "dx");

    const Value numbers = random_value(type, {2, 3, 2, 4}, 5, 4), rate = random_value(type, {4}, 6),
                bias = random_value(type, {4}, 7), dg = random_value(sums, gates, 8),
                dbeta = random_value(sums, gates, 9), before = random_value(dtype_of<S>(), {4}, 10);
    const cuda::GateSizes sizes = {24, 4, 2};
    const OnDevice n(numbers, offset), r(rate, offset), b(bias, offset), of_g(dg, offset),
        of_beta(dbeta, offset);
    OnDevice g(sums, gates, offset), beta(sums, gates, offset), dn(type, numbers.dims(), offset),
        drate(before, offset), dbias(before, offset);
    cuda::delta_gates(sizes, n.as<const T>(), r.as<const T>(), b.as<const T>(), g.as<C>(), beta.as<C>(),
                      nullptr);
    const std::vector<Value> gated = cpu("delta_gates", {numbers, rate, bias, zeros(dg), zeros(dg)});
    expect_as(g, gated[3], "g");
    expect_as(beta, gated[4], "beta");
    cuda::delta_gates_input_grad(sizes, of_g.as<const C>(), of_beta.as<const C>(), n.as<const T>(),
                                 r.as<const T>(), b.as<const T>(), dn.as<T>(), nullptr);
    expect_as(dn, cpu("delta_gates_input_grad", {dg, dbeta, numbers, rate, bias, zeros(numbers)})[5], "dx");
    cuda::delta_gates_weight_grad(sizes, of_g.as<const C>(), n.as<const T>(), r.as<const T>(),
                                  b.as<const T>(), cuda::Sum<S>(drate.as<S>(), false),
                                  cuda::Sum<S>(dbias.as<S>(), true), nullptr);
    const std::vector<Value> added =
        cpu_sums("delta_gates_weight_grad", {dg, numbers, rate, bias, before, zeros(before)}, {4, 5});
    expect_as(drate, added[4], "drate");
    expect_as(dbias, added[5], "dbias");
  });
}

TEST_F(DeltaRuleOnDevice, GatesAndPartsAsTheCpu) {
  for_types([&]<class T>(std::int64_t offset) {
    const DType type = dtype_of<T>();
    const std::vector<std::int64_t> whole = {2, 3, 6, 5}, half = {2, 3, 3, 5};
    const Value x = random_value(type, whole, 1), y = random_value(type, half, 2, 3),
                dy = random_value(type, half, 3), mixed = random_value(type, {2, 3, 2, 11}, 4);
    const OnDevice in(x, offset), of_y(y, offset), of_dy(dy, offset), of_mixed(mixed, offset);
    OnDevice first(type, half, offset), gate(type, half, offset), joined(type, whole, offset);
    cuda::split_gate(in.as<const T>(), first.as<T>(), gate.as<T>(), 18, 5, nullptr);
    const std::vector<Value> apart = cpu("split_gate", {x, zeros(y), zeros(y)});
    EXPECT_EQ(first.value().bytes(), apart[1].bytes());
    EXPECT_EQ(gate.value().bytes(), apart[2].bytes());
    cuda::join_gate(first.as<const T>(), gate.as<const T>(), joined.as<T>(), 18, 5, nullptr);
    EXPECT_EQ(joined.value().bytes(), x.bytes());
    for (const bool silu : {false, true}) {
      OnDevice gated(type, half, offset), dgate(type, half, offset);
      cuda::output_gate(of_dy.as<const T>(), of_y.as<const T>(), gated.as<T>(), 90, silu, nullptr);
      expect_as(gated, cpu("output_gate", {dy, y, zeros(y)}, {{.i = silu}})[2], "y");
      cuda::output_gate_grad(of_dy.as<const T>(), of_dy.as<const T>(), of_y.as<const T>(), dgate.as<T>(), 90,
                             silu, nullptr);
      expect_as(dgate, cpu("output_gate_grad", {dy, dy, y, zeros(y)}, {{.i = silu}})[3], "dgate");
    }
    OnDevice c(type, {2, 3, 2, 5}, offset), z(type, {2, 3, 4, 3}, offset), back(type, mixed.dims(), offset);
    cuda::split_mixed(of_mixed.as<const T>(), c.as<T>(), z.as<T>(), 12, 5, 6, nullptr);
    EXPECT_EQ(z.value().bytes(),
              cpu("split_mixed", {mixed, Value(type, {2, 3, 2, 5}), Value(type, {2, 3, 4, 3})})[2].bytes());
    cuda::join_mixed(c.as<const T>(), z.as<const T>(), back.as<T>(), 12, 5, 6, nullptr);
    EXPECT_EQ(back.value().bytes(), mixed.bytes());
  });
}

}  // namespace
}  // namespace prun::test::delta_rule_test
