// Recipes drawn at random, without asking what is allowed.
#pragma once

#include <string>
#include <vector>

namespace prun::test {

enum class Scale {
  small,  // in any precision: for comparing numbers
  large,  // in fp32, each rank's plan well above what a process needs anyway: for comparing memory
};

// PRUN_SEED; else always the same, but with PRUN_LONG outside of CI another one each time.
unsigned first_seed();

// The same seed, the same text.
std::string drawn_recipe(unsigned seed, Scale scale);

// What such a recipe may have in the host's memory: text of the strategy offload.
std::string drawn_offload(unsigned seed);

// The same with an axis of two ranks more, along which attention has heads for sequences, with ops that
// prefer a dimension, take maxima and make numbers, and with state in parts over several axes.
std::string drawn_exchanges(unsigned seed, std::string text);

// The same with adapters beside some of its weights, all else frozen, and with more than cross-entropy in
// every other one's loss.
std::string drawn_adapters(unsigned seed, std::string text);
// The same with sequences shared out over an axis more, documents kept apart, fewer groups of key and value
// heads than tensor-parallel ranks, and state in parts over both axes.
std::string drawn_long(unsigned seed, std::string text);
// The same in fp64, of a decoder with experts, in whole layers on as many axes as it happens.
std::string drawn_experts(unsigned seed, std::string text);
// Likewise, where attention has heads for sequences.
std::string drawn_by_heads(unsigned seed, std::string text);
// What verify_layout() compares exactly of these: names.
std::vector<std::string> drawn_numbers(const std::string& text);

// The same of a decoder of one of llama's families, with windows, layers in turn and slower positions.
std::string drawn_family(unsigned seed, std::string text);

// The same in fp64, of a model of both directions on masked tokens, with sequences shared out in a third.
std::string drawn_masked(unsigned seed, std::string text);

// The same in fp64, of a model whose segments carry values for all behind them, with sequences shared out in
// a third.
std::string drawn_relay(unsigned seed, std::string text);

// The same in fp64, of a model with encoder and decoder.
std::string drawn_spans(unsigned seed, std::string text);

// The same with other lines in [device], and with these in [comm]; what only the CPU device has is left out.
std::string drawn_on(std::string text, const std::string& device, const std::string& comm);
// On the device cpu-async and the comm plugin meet-async, with lines of options for each.
std::string drawn_on_async(const std::string& text, const std::string& device = {},
                           const std::string& comm = {});

// Whether the refusal of a drawn recipe is one of those that are in order.
bool is_permitted_refusal(const std::string& message);

}  // namespace prun::test
