#include "divergence.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "sampling.h"

namespace seqlab {
namespace {

// As NumPy's, linear between the two nearest.
double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace

Divergence DivergenceFrom(const std::vector<double>& reference, const std::vector<double>& logits, int64_t size) {
  if (reference.size() != logits.size() || reference.empty() || size < 1) {
    Refuse("there are ", logits.size(), " logits, and should be ", reference.size());
  }
  std::vector<double> kl;
  double same = 0.0;
  for (auto first = reference.begin(), found = logits.begin(); first != reference.end(); first += size, found += size) {
    std::vector<double> theirs(first, first + size), ours(found, found + size);
    LogSoftmax(theirs);
    LogSoftmax(ours);
    double sum = 0.0;
    for (size_t place = 0; place < theirs.size(); ++place) sum += std::exp(theirs[place]) * (theirs[place] - ours[place]);
    kl.push_back(sum);
    const auto best = std::max_element(theirs.begin(), theirs.end()) - theirs.begin();
    same += best == std::max_element(ours.begin(), ours.end()) - ours.begin();
  }
  double mean = 0.0;
  for (const double one : kl) mean += one / static_cast<double>(kl.size());
  return {mean, Quantile(kl, 0.99), same / static_cast<double>(kl.size())};
}

}  // namespace seqlab
