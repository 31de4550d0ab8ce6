// JavaPoints computes the last column of java_points.tsv, in the arithmetic of the original classes:
// int, long and double of Java, java.util.concurrent.TimeUnit, and Scala's FiniteDuration. With
// Java 19 or later:
//
//	java JavaPoints.java <java_points.tsv >new.tsv

import java.io.*;
import java.math.BigInteger;
import java.util.concurrent.TimeUnit;

public class JavaPoints {
  static String nanos(long millis) { // saturating, as a Duration of Go
    BigInteger n = BigInteger.valueOf(millis).multiply(BigInteger.valueOf(1_000_000));
    if (n.bitLength() > 63) n = BigInteger.valueOf(n.signum() > 0 ? Long.MAX_VALUE : Long.MIN_VALUE);
    return n.toString();
  }

  static String millis(String unit, long n) { return nanos(TimeUnit.valueOf(unit).toMillis(n)); }

  // RetryPolicies.calculateExponentialTime of Hadoop
  static long exponential(long time, int retries, long cap, double u) {
    return (long) (Math.min(time * (1L << retries), cap) * (u + 0.5));
  }

  // FiniteDuration times a Double: null is infinite or undefined, ArithmeticException "beyond a long"
  static Long times(long n, double factor) {
    double x = n * factor;
    if (Double.isInfinite(factor) || Double.isInfinite(x) || Double.isNaN(x)) return null;
    long r = Math.round(x);
    if (x > (double) Long.MAX_VALUE || x < (double) Long.MIN_VALUE || r == Long.MIN_VALUE)
      throw new ArithmeticException();
    return r;
  }

  // BackoffSupervisor.calculateDelay of Pekko, for settings above 0 or below
  static long pekko(long min, long max, double factor, int n, double u) {
    try {
      Long d = times(min, Math.pow(2, n));
      if (d == null && min < 0) return max;
      Long x = times(d == null ? max : Math.min(d, max), 1.0 + u * factor);
      return x == null ? max : x;
    } catch (ArithmeticException e) {
      return max;
    }
  }

  // IntervalFunction of resilience4j; a factor below 0 stands for the functions without one
  static long resilience4j(long x, double multiplier, double factor, long max, int attempt, double u) {
    for (int i = 1; i < attempt; i++) x = (long) (x * multiplier);
    if (!(factor < 0)) {
      double low = x - factor * x, high = x + factor * x;
      x = (long) Math.max(1.0, low + u * (high - low + 1));
    }
    return Math.min(x, max);
  }

  static String bound(int bound) { return bound > 0 ? "" + bound : "throws"; } // of Random.nextInt

  // RetryPolicies.MultipleLinearRandomRetry.parseCommaSeparatedString of Hadoop
  static String pairs(String text) {
    String[] e = text.split(",");
    if (e.length == 0 || e.length % 2 != 0) return "null";
    StringBuilder b = new StringBuilder();
    try {
      for (int i = 0; i < e.length; i += 2) {
        int sleep = Integer.parseInt(e[i].trim()), retries = Integer.parseInt(e[i + 1].trim());
        if (sleep <= 0 || retries <= 0) return "null";
        b.append(b.length() == 0 ? "" : " ").append(retries).append("x").append(sleep);
      }
    } catch (NumberFormatException e2) {
      return "null";
    }
    return b.toString();
  }

  static String compute(String[] f) {
    switch (f[0]) {
      case "exponential":
        return millis(f[4], exponential(l(f[1]), i(f[2]) + 1, Long.MAX_VALUE, d(f[3])));
      case "proportional": return millis(f[3], l(f[1]) * (i(f[2]) + 1));
      case "failover": return nanos(exponential(l(f[1]), i(f[2]), l(f[3]), d(f[4])));
      case "fixed_time": return "" + (int) (l(f[1]) / l(f[2]));
      case "beyond": return "" + (i(f[1]) - i(f[2]) > i(f[3]));
      case "linear": return nanos(Math.round(i(f[1]) * (d(f[2]) + 0.5)));
      case "pairs": return pairs(f[1]);
      case "pekko": return "" + pekko(l(f[1]), l(f[2]), d(f[3]), i(f[4]), d(f[5]));
      case "resilience4j":
        return nanos(resilience4j(l(f[1]), d(f[2]), d(f[3]), l(f[4]), i(f[5]), d(f[6])));
      case "flume_sink": return nanos(Math.min(i(f[1]), (1 << i(f[2])) * 1000));
      case "flume_order": return nanos(Math.min(l(f[1]), 1000 * (1 << i(f[2]))));
      case "flume_spool":
        int wait = 250;
        for (int n = i(f[2]); n > 0; n--) wait = wait << 1 >= i(f[1]) ? i(f[1]) : wait << 1;
        return nanos(wait);
      case "curator": return bound(1 << (i(f[1]) + 1));
      case "jodis": return bound(1 << Math.min(30, i(f[1]) + 1));
      case "double": return Double.toString(d(f[1]));
    }
    throw new IllegalArgumentException(f[0]);
  }

  static long l(String s) { return Long.parseLong(s); }
  static int i(String s) { return Integer.parseInt(s); }
  static double d(String s) { return Double.parseDouble(s); }

  public static void main(String[] args) throws IOException {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    PrintStream out = new PrintStream(System.out, false, "UTF-8");
    for (String line; (line = in.readLine()) != null; ) {
      String given = line.substring(0, line.lastIndexOf('\t'));
      out.print(given + "\t" + compute(given.split("\t", -1)) + "\n");
    }
    out.flush();
  }
}
