// add_parts adds to stretches of one dimension, such as queries, keys and values within their packed
// projection or one half of a gated one; take_part, its gradient, is one of them by itself. A stretch of
// dimension `packed` from its element 4 on has a dimension `packed_4` in its place.
// pair puts two values of one shape behind each other in their last dimension, `hidden` say, which makes it
// `hidden_pair`; half, its gradient, is one of the two again.
#include <string>
#include <string_view>
#include <vector>

#include "base/require.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr int most_parts = 3;
constexpr const char* begins[most_parts] = {"begin_b", "begin_c", "begin_d"};
constexpr const char* ends[most_parts] = {"end_b", "end_c", "end_d"};

struct Part {
  int dim;
  std::int64_t begin, end;
};

// Cuts that stretch of operand 0, and makes it operand `part`.
OperandShape cut(const OpShape& s, const char* op, const Part& part) {
  OperandShape shape = s.operand[0];
  require(part.dim >= 0 && part.dim < shape.rank, op, ": `dim` is ", part.dim, ", and there are ", shape.rank,
          " dimensions");
  Dim& dim = shape.dims[part.dim];
  require(part.begin >= 0 && part.begin < part.end && part.end <= dim.extent, op, ": elements ", part.begin,
          " to ", part.end, " of dimension '", dim.name.view(), "', which has ", dim.extent);
  dim = {Name(std::string(dim.name.view()) + "_" + std::to_string(part.begin)), part.end - part.begin};
  return shape;
}

bool are_alike(const OperandShape& a, const OperandShape& b) {
  bool alike = a.rank == b.rank && a.dtype == b.dtype;
  for (int d = 0; alike && d < a.rank; ++d) alike = a.dims[d] == b.dims[d];
  return alike;
}

struct AddParts {
  static constexpr const char* kind = "add_parts";
  static constexpr const char* at_position = kind;
  static constexpr const char* help =
      "y = a, and b, c and d added to elements [begin, end) of its dimension number `dim`";
  static constexpr OperandDef operands[] = {
      {"a"}, {"b"}, {"c", Access::read, true}, {"d", Access::read, true}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("dim", 0),     int_attr(begins[0], 0), int_attr(ends[0], 0),
                                      int_attr(begins[1], 0), int_attr(ends[1], 0),   int_attr(begins[2], 0),
                                      int_attr(ends[2], 0)};
  static void rule(OpShape& s) {
    const int dim = static_cast<int>(s.attrs[0].i);
    std::int64_t end = 0;
    for (int i = 0; i < most_parts; ++i) {
      if (!s.operand[1 + i].present) continue;
      const Part part{dim, s.attrs[1 + 2 * i].i, s.attrs[2 + 2 * i].i};
      const OperandShape wanted = cut(s, kind, part);
      require(are_alike(s.operand[1 + i], wanted),
              "add_parts adds values of a's type and shape, of which dimension '",
              s.operand[0].dims[dim].name.view(), "' is called '", wanted.dims[dim].name.view(), "' and has ",
              wanted.dims[dim].extent);
      require(part.begin >= end, "add_parts: a part begins at ", part.begin,
              ", before the one in front of it ends");
      end = part.end;
      s.whole(1 + i, dim, dim + 1);
    }
    s.like(4, 0);
    s.whole(0, dim, dim + 1);
    s.pass_partial({0, 1, 2, 3});
  }
  static void gradient(const Gradient& g) {
    g.pass(0, g.arrived(4));
    for (int i = 0; i < most_parts; ++i)
      g.input(1 + i, "take_part", {g.arrived(4)},
              {{"dim", g.attr("dim")}, {"begin", g.attr(begins[i])}, {"end", g.attr(ends[i])}});
  }
};

struct TakePart {
  static constexpr const char* kind = "take_part";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = elements [begin, end) of x's dimension number `dim`";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("dim", 0), int_attr("begin", 0), int_attr("end", 0)};
  static void rule(OpShape& s) {
    const int dim = static_cast<int>(s.attrs[0].i);
    s.operand[1] = cut(s, kind, {dim, s.attrs[1].i, s.attrs[2].i});
    s.whole(0, dim, dim + 1);
    s.whole(1, dim, dim + 1);
    s.pass_partial({0});
  }
  static void cost(const OpShape& s, OpCost& c) {
    c.bytes = 2.0 * static_cast<double>(s.operand[1].elements() * size_of(s.operand[1].dtype));
  }
};

constexpr std::string_view of_pair = "_pair";

struct Pair {
  static constexpr const char* kind = "pair";
  static constexpr const char* at_position = kind;
  static constexpr const char* help = "y = a and, behind it in the last dimension, b";
  static constexpr OperandDef operands[] = {{"a"}, {"b"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape& a = s.operand[0];
    require(a.rank >= 1 && are_alike(a, s.operand[1]), "pair takes two values of one type and shape");
    s.like(2, 0);
    Dim& last = s.operand[2].dims[a.rank - 1];
    last = {Name(std::string(last.name.view()) + std::string(of_pair)), 2 * last.extent};
    s.whole(0, a.rank - 1, a.rank);
    s.whole(2, a.rank - 1, a.rank);
    s.pass_partial({0, 1});
  }
  static void gradient(const Gradient& g) {
    for (int i = 0; i < 2; ++i) g.input(i, "half", {g.arrived(2)}, {{"second", static_cast<double>(i)}});
  }
};

struct Half {
  static constexpr const char* kind = "half";
  static constexpr const char* help = "a of what pair has made, or b, which is the second";
  static constexpr OperandDef operands[] = {{"pair"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("second", 0)};
  static void rule(OpShape& s) {
    const OperandShape& pair = s.operand[0];
    require(pair.rank >= 1, "half takes what pair has made");
    const Dim& both = pair.dims[pair.rank - 1];
    const std::string_view name = both.name.view();
    require(name.ends_with(of_pair) && both.extent % 2 == 0, "half takes what pair has made, and not '", name,
            "'");
    s.like(1, 0);
    s.operand[1].dims[pair.rank - 1] = {Name(name.substr(0, name.size() - of_pair.size())), both.extent / 2};
    s.whole(0, pair.rank - 1, pair.rank);
    s.whole(1, pair.rank - 1, pair.rank);
    s.pass_partial({0});
  }
};

}  // namespace

std::vector<OpDef> parts_ops() {
  return {op_def<AddParts>(), op_def<TakePart>(), op_def<Pair>(), op_def<Half>()};
}

}  // namespace prun
