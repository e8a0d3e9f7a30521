#include "tools/bench/fp8_errors/report.hpp"

#include <algorithm>
#include <cstdio>

#include "base/json.hpp"

namespace prun::fp8_errors {
namespace {

// ---------------------------------------------------------------- tables

void print(const char* what, const std::vector<Compared>& steps, std::vector<Likeness> Compared::*rows) {
  std::printf("\n| gradients by %s |", what);
  for (std::size_t i = 1; i < steps.size(); ++i)
    std::printf(" %s: cosine | error |", steps[i].format.c_str());
  std::printf("\n|---|");
  for (std::size_t i = 1; i < steps.size(); ++i) std::printf("---|---|");
  for (std::size_t r = 0; r < (steps[0].*rows).size(); ++r) {
    std::printf("\n| %s |", (steps[0].*rows)[r].name.c_str());
    for (std::size_t i = 1; i < steps.size(); ++i)
      std::printf(" %.5f | %.2f %% |", (steps[i].*rows)[r].cosine, 100 * (steps[i].*rows)[r].error);
  }
  std::printf("\n");
}

const char* name_of(Which which) {
  if (which == Which::forward) return "forward";
  return which == Which::input_gradient ? "input gradient" : "weight gradient";
}

// Sums up products of one kind.
struct Summary {
  explicit Summary(std::string of) : name(std::move(of)) {}

  std::string name;
  double count = 0, largest = 0, emulated = 0;
  ProductErrors sums;

  void take(const ProductErrors& one) {
    count += 1;
    sums.left += one.left, sums.right += one.right;
    sums.terms += one.terms, sums.product += one.product, sums.compute += one.compute;
    sums.larger += one.larger, sums.one_scale += one.one_scale, sums.e5m2 += one.e5m2;
    largest = std::max(largest, one.larger);
    emulated = std::max(emulated, one.emulated);
  }
  void print() const {
    const auto mean = [&](double sum) { return 100 * sum / count; };
    std::printf(
        "| %s | %.2f %%, %.2f %% | %.2f %% | %.2f %% | %.2f %%, %.2f %% | %.2f %% | %.3f %% | %.2f %% |",
        name.c_str(), mean(sums.left), mean(sums.right), mean(sums.product), mean(sums.terms),
        mean(sums.larger), 100 * largest, mean(sums.compute), 100 * emulated, mean(sums.one_scale));
    sums.e5m2 > 0 ? std::printf(" %.2f %% |\n", mean(sums.e5m2)) : std::printf(" |\n");
  }
};

void print(const char* what, const std::vector<ProductErrors>& products, std::string ProductErrors::*name) {
  std::printf(
      "\n| products by %s | factors | of the product | of terms | of the larger: mean, most | without fp8 | "
      "beside emulated, most | one scale a tensor | gradient in e5m2 |\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      what);
  std::vector<Summary> rows;
  for (const ProductErrors& one : products) {
    const std::string key = std::string(name_of(one.which)) + ", " + one.*name;
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Summary& of) { return of.name == key; });
    if (row == rows.end()) row = rows.insert(rows.end(), Summary(key));
    row->take(one);
  }
  for (const Summary& row : rows) row.print();
}

// ---------------------------------------------------------------- JSON

void write(JsonWriter& json, const char* what, const std::vector<Likeness>& rows) {
  json.name(what).begin_object();
  for (const Likeness& one : rows) {
    json.name(one.name).begin_object();
    json.name("cosine").value(one.cosine).name("error").value(one.error).end_object();
  }
  json.end_object();
}

void write(JsonWriter& json, const Compared& step) {
  json.name(step.format).begin_object().name("loss").value(step.loss);
  write(json, "layers", step.layers);
  write(json, "weights", step.weights);
  write(json, "tensors", step.tensors);
  json.end_object();
}

void write(JsonWriter& json, const ProductErrors& one) {
  json.begin_object().name("layer").value(one.layer).name("weight").value(one.weight);
  json.name("product").value(name_of(one.which));
  const std::pair<const char*, double> figures[] = {
      {"of_terms", one.terms},      {"of_larger", one.larger},         {"of_product", one.product},
      {"without_fp8", one.compute}, {"beside_emulated", one.emulated}, {"left", one.left},
      {"right", one.right},         {"one_scale", one.one_scale},      {"e5m2", one.e5m2}};
  for (const auto& [name, figure] : figures) json.name(name).value(figure);
  json.end_object();
}

}  // namespace

void print_losses(const std::vector<double>& losses) {
  std::printf("trained %zu steps: loss %.4f to %.4f\n", losses.size(), losses.front(), losses.back());
  std::fflush(stdout);
}

void print(const std::vector<Compared>& steps) {
  for (const Compared& one : steps)
    std::printf("loss of the next step, %s: %.6f\n", one.format.c_str(), one.loss);
  print("layer", steps, &Compared::layers);
  print("weight", steps, &Compared::weights);
  std::fflush(stdout);
}

void print(const std::vector<ProductErrors>& products) {
  print("layer", products, &ProductErrors::layer);
  print("weight", products, &ProductErrors::weight);
}

std::string to_json(const Findings& findings) {
  JsonWriter json;
  json.begin_object().name("losses").begin_array();
  for (const double loss : findings.losses) json.value(loss);
  json.end_array().name("gradients").begin_object();
  for (const Compared& one : findings.steps) write(json, one);
  json.end_object().name("products").begin_array();
  for (const ProductErrors& one : findings.products) write(json, one);
  return json.end_array().end_object().take();
}

}  // namespace prun::fp8_errors
