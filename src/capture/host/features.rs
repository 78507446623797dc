//! Lists the extensions of the instruction set that this machine has, of those that programs test
//! to choose their code.

/// Creates an array of pairs: a feature's name, and true if this machine has the feature.
macro_rules! detected {
    ($($name:tt),* $(,)?) => {
        [$(($name, std::arch::is_x86_feature_detected!($name))),*]
    };
}

/// Returns the extensions that both the CPU and the operating system support, by the names that
/// compilers use.
pub fn features() -> Vec<String> {
    let all = detected![
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "sse4a",
        "popcnt",
        "lzcnt",
        "movbe",
        "cmpxchg16b",
        "aes",
        "pclmulqdq",
        "sha",
        "rdrand",
        "rdseed",
        "bmi1",
        "bmi2",
        "adx",
        "f16c",
        "fma",
        "avx",
        "avx2",
        "vaes",
        "vpclmulqdq",
        "gfni",
        "avx512f",
        "avx512cd",
        "avx512dq",
        "avx512bw",
        "avx512vl",
        "avx512ifma",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512vnni",
        "avx512bitalg",
        "avx512vpopcntdq",
        "avx512bf16",
        "avx512fp16",
        "rtm",
        "tbm",
        "xsave",
        "xsaveopt",
        "xsavec",
        "xsaves",
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name.to_owned()).collect()
}

/// Returns those of `features` that this machine lacks.
pub fn lacking(features: &[String]) -> Vec<&str> {
    let here = self::features();
    features.iter().filter(|feature| !here.contains(feature)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_lacks_nothing_that_it_has() {
        let mut features = features();
        assert!(lacking(&features).is_empty());
        features.push("apl386".to_owned());
        assert_eq!(lacking(&features), ["apl386"]);
    }

    #[test]
    fn names_are_those_of_the_kernel_where_both_are_the_same() {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap();
        let flags: Vec<&str> = flags.split_whitespace().collect();
        for name in ["avx", "avx2", "aes", "bmi1", "bmi2", "fma", "avx512f", "popcnt"] {
            let is_here = features().iter().any(|feature| feature == name);
            assert_eq!(is_here, flags.contains(&name), "{name}");
        }
    }
}
