#include <string>
#include <string_view>
#include <vector>

#include "base/require.hpp"
#include "prun/named_gradient.hpp"
#include "prun/ops/parts.hpp"

namespace prun::ops {
namespace {

struct Part {
  int dim;
  std::int64_t begin, end;
};

// Returns the shape of that stretch of x.
OperandShape cut(const OperandShape& x, const char* op, const Part& part) {
  OperandShape shape = x;
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

constexpr std::string_view of_pair = "_pair";

}  // namespace

void AddParts::rule(RuleOf<AddParts> s) {
  const int dim = static_cast<int>(s.integer("dim"));
  std::int64_t end = 0;
  const auto check = [&](OperandOf<AddParts> name, const Part& part) {
    if (!s.has(name)) return;
    const OperandShape wanted = cut(s["a"], kind, part);
    require(are_alike(s[name], wanted), "add_parts adds values of a's type and shape, of which dimension '",
            s["a"].dims[dim].name.view(), "' is called '", wanted.dims[dim].name.view(), "' and has ",
            wanted.dims[dim].extent);
    require(part.begin >= end, "add_parts: a part begins at ", part.begin,
            ", before the one in front of it ends");
    end = part.end;
    s.whole(name, dim, dim + 1);
  };
  check("b", {dim, s.integer("begin_b"), s.integer("end_b")});
  check("c", {dim, s.integer("begin_c"), s.integer("end_c")});
  check("d", {dim, s.integer("begin_d"), s.integer("end_d")});
  s.like("y", "a");
  s.whole("a", dim, dim + 1);
  s.pass_partial({"a", "b", "c", "d"});
}

void AddParts::gradient(GradientOf<AddParts> g) {
  g.pass("a", g.arrived("y"));
  const auto take = [&](OperandOf<AddParts> name, double begin, double end) {
    input_gradient<TakePart>(g, {name}, {{"x", g.arrived("y")}},
                             {{"dim", g.attr("dim")}, {"begin", begin}, {"end", end}});
  };
  take("b", g.attr("begin_b"), g.attr("end_b"));
  take("c", g.attr("begin_c"), g.attr("end_c"));
  take("d", g.attr("begin_d"), g.attr("end_d"));
}

void TakePart::rule(RuleOf<TakePart> s) {
  const int dim = static_cast<int>(s.integer("dim"));
  s["y"] = cut(s["x"], kind, {dim, s.integer("begin"), s.integer("end")});
  s.whole("x", dim, dim + 1);
  s.whole("y", dim, dim + 1);
  s.pass_partial({"x"});
}

void TakePart::cost(ShapeOf<TakePart> s, OpCost& c) {
  c.bytes = 2.0 * static_cast<double>(s["y"].elements() * size_of(s["y"].dtype));
}

void Pair::rule(RuleOf<Pair> s) {
  const OperandShape& a = s["a"];
  require(a.rank >= 1 && are_alike(a, s["b"]), "pair takes two values of one type and shape");
  s.like("y", "a");
  Dim& last = s["y"].dims[a.rank - 1];
  last = {Name(std::string(last.name.view()) + std::string(of_pair)), 2 * last.extent};
  s.whole("a", a.rank - 1, a.rank);
  s.whole("y", a.rank - 1, a.rank);
  s.pass_partial({"a", "b"});
}

void Pair::gradient(GradientOf<Pair> g) {
  input_gradient<Half>(g, {"a"}, {{"pair", g.arrived("y")}}, {{"second", 0}});
  input_gradient<Half>(g, {"b"}, {{"pair", g.arrived("y")}}, {{"second", 1}});
}

void Half::rule(RuleOf<Half> s) {
  const OperandShape& pair = s["pair"];
  require(pair.rank >= 1, "half takes what pair has made");
  const Dim& both = pair.dims[pair.rank - 1];
  const std::string_view name = both.name.view();
  require(name.ends_with(of_pair) && both.extent % 2 == 0, "half takes what pair has made, and not '", name,
          "'");
  s.like("y", "pair");
  s["y"].dims[pair.rank - 1] = {Name(name.substr(0, name.size() - of_pair.size())), both.extent / 2};
  s.whole("pair", pair.rank - 1, pair.rank);
  s.whole("y", pair.rank - 1, pair.rank);
  s.pass_partial({"pair"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> parts_ops() {
  using namespace ops;
  return {op_def<AddParts>(), op_def<TakePart>(), op_def<Pair>(), op_def<Half>()};
}

}  // namespace prun
