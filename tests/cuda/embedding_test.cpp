#include "embedding/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::embedding_test {
namespace {

using Embedding = CudaTest;

// How tokens are drawn: evenly, many alike, or all alike.
enum class Draw { even, skewed, one };

Value draw_tokens(std::int64_t batch, std::int64_t seq, std::int64_t vocab, Draw draw) {
  std::mt19937 generator(3);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(batch * seq));
  for (std::int64_t& token : tokens) {
    token = static_cast<std::int64_t>(generator()) % vocab;
    if (draw == Draw::skewed && generator() % 3) token = vocab / 2;
    if (draw == Draw::one) token = vocab - 1;
  }
  return integers(DType::i32, {batch, seq}, tokens);
}

struct Shape {
  std::int64_t batch, seq, width, vocab;
};

// Returns small shapes and, on a GPU alone, two with as many rows, or tokens, as blocks share at most.
std::vector<Shape> shapes() {
  std::vector<Shape> all = {{1, 1, 1, 1},       {2, 3, 5, 7},     {3, 50, 64, 11},
                            {4, 100, 96, 1000}, {2, 700, 33, 40}, {1, 900, 264, 3}};
  if (!on_host) all.insert(all.end(), {{16, 1024, 72, 3000}, {2, 300, 8, 200000}});
  return all;
}

template <class Body>
void for_draws(Body body) {
  for (const Shape& shape : shapes())
    for (Draw draw : {Draw::even, Draw::skewed, Draw::one})
      // A shard of the table: all of it, or the rows of the second half.
      for (std::int64_t first : {std::int64_t{0}, shape.vocab / 2}) {
        SCOPED_TRACE("vocab " + std::to_string(shape.vocab) + " first row " + std::to_string(first) +
                     " draw " + std::to_string(static_cast<int>(draw)));
        body(shape, draw_tokens(shape.batch, shape.seq, shape.vocab, draw), first);
      }
}

TEST_F(Embedding, RowsByTokenAndByPosition) {
  for_types([]<class T>(std::int64_t offset) {
    for_draws([&](const Shape& s, const Value& tokens, std::int64_t first) {
      const DType type = dtype_of<T>();
      const std::int64_t rows = s.vocab - first, count = s.batch * s.seq;
      const Value t = random_value(type, {rows, s.width}, 1), p = random_value(type, {s.seq, s.width}, 2);
      const Value none(type, {s.batch, s.seq, s.width});
      const Value rows_want = cpu("embedding", {tokens, t, none}, {}, {{1, 0, first}})[2];
      const Value both_want = cpu("add_position", {rows_want, p, none})[2];
      OnDevice ids(tokens), table(t, offset), positions(p, offset);
      OnDevice y(type, none.dims(), offset), both(type, none.dims(), offset);
      cuda::embedding<T>(ids.as<std::int32_t>(), table.as<T>(), nullptr, y.as<T>(), count, s.seq, s.width,
                         rows, first, nullptr);
      EXPECT_EQ(y.value().bytes(), rows_want.bytes());
      cuda::embedding<T>(ids.as<std::int32_t>(), table.as<T>(), positions.as<T>(), both.as<T>(), count, s.seq,
                         s.width, rows, first, nullptr);
      EXPECT_EQ(both.value().bytes(), both_want.bytes());
      cuda::add_position(y.as<T>(), positions.as<T>(), nullptr, y.as<T>(), s.batch, s.seq, s.width, nullptr);
      EXPECT_EQ(y.value().bytes(), both_want.bytes()) << "add_position in place";
    });
  });
}

TEST_F(Embedding, RowsFromAPositionOn) {
  for_types([]<class T>(std::int64_t offset) {
    for (const std::int64_t width : {1, 33, 64}) {
      const DType type = dtype_of<T>();
      const Value x = random_value(type, {5, 4, width}, 1), table = random_value(type, {9, width}, 2);
      for (const double position : {0.0, 3.0, 7.0}) {  // the last goes beyond the table
        Value at(DType::f64, {});
        at.set(0, position);
        const Value want = cpu("add_position_at", {x, table, at, Value(type, {5, 4, width})})[3];
        OnDevice in(x, offset), rows(table, offset), where(at), y(type, {5, 4, width}, offset);
        cuda::add_position_at(in.as<T>(), rows.as<T>(), where.as<double>(), y.as<T>(), 5, 4, width, 9,
                              nullptr);
        EXPECT_EQ(y.value().bytes(), want.bytes()) << width;
      }
    }
  });
}

TEST_F(Embedding, GradientsAddToTheTables) {
  for_sums([]<class T, class S>(std::int64_t offset) {
    for_draws([&](const Shape& s, const Value& tokens, std::int64_t first) {
      const std::int64_t rows = s.vocab - first, count = s.batch * s.seq;
      const Value d = random_value(dtype_of<T>(), {s.batch, s.seq, s.width}, 1);
      const Value before = random_value(dtype_of<S>(), {rows, s.width}, 2);
      const std::int64_t padding = first == 0 ? s.vocab / 2 : -1;
      const Value want = cpu_sums("embedding_weight_grad", {tokens, d, before}, {2}, {Attr{.i = padding}},
                                  {{2, 0, first}})[2];
      OnDevice ids(tokens), dy(d, offset);
      std::vector<char> bits;
      for (int turn = 0; turn < 2; ++turn) {
        OnDevice dtable(before, offset);
        {
          const DeviceWorkspace workspace(cuda::embedding_weight_grad_workspace<T>(count, s.width));
          cuda::embedding_weight_grad(ids.as<std::int32_t>(), dy.as<T>(), dtable.as<S>(), count, s.width,
                                      rows, first, padding, workspace.data(), nullptr);
        }
        const Value got = dtable.value();
        expect_close(got, want.numbers(), close_sums<S>(16), "dtable");
        if (turn == 0) bits = got.bytes();
        EXPECT_EQ(got.bytes(), bits) << "the same bits every time";
      }
      const Value positions = random_value(dtype_of<S>(), {s.seq, s.width}, 3);
      const auto expect_positions = [&](const Value& start, const Value& held, bool begins) {
        OnDevice dpositions(held, offset);
        cuda::position_weight_grad<T, S>(dy.as<T>(), {dpositions.as<S>(), begins}, nullptr, s.batch, s.seq,
                                         s.width, nullptr);
        EXPECT_EQ(dpositions.value().bytes(),
                  cpu_sums("position_weight_grad", {d, Value(), start}, {2})[2].bytes());
      };
      expect_positions(positions, positions, false);
      expect_positions(zeros(positions), poison(positions), true);
    });
  });
}

}  // namespace
}  // namespace prun::test::embedding_test
