    fn reduced(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
        // Your code here.
        Ok(())
    }
